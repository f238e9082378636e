// A server with one UDP socket, which knows nothing of SO_REUSEPORT: returns each datagram.
// server PORT [--control TCP_PORT] [--try] [--second] [--background] [--user UID] [--tcp] [--answer]
//   [--silent]

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_hangup(int signal) {
    (void)signal;
    write(1, "hangup\n", 7);
}

static int bound(int type, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    // A busy machine must not make the tests lose datagrams in full buffers.
    int socket_ = socket(AF_INET, type, 0), bytes = 4 << 20;

    setsockopt(socket_, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
    if (bind(socket_, (struct sockaddr *)&address, sizeof(address))) {
        perror("bind");
        exit(3);
    }
    if (type == SOCK_STREAM)
        listen(socket_, 16);
    return socket_;
}

int main(int count, char **words) {
    const char *copy = getenv("COPY");
    int port = atoi(words[1]), i, udp, answer = 0, silent = 0;
    char buffer[2048];

    signal(SIGHUP, on_hangup);
    for (i = 2; i < count; i++) {
        if (!strcmp(words[i], "--control"))
            bound(SOCK_STREAM, atoi(words[++i]));
        else if (!strcmp(words[i], "--tcp"))
            bound(SOCK_STREAM, port);
        else if (!strcmp(words[i], "--try"))
            close(bound(SOCK_DGRAM, port));
        else if (!strcmp(words[i], "--second"))
            bound(SOCK_DGRAM, port);
        else if (!strcmp(words[i], "--answer"))
            answer = 1;
        else if (!strcmp(words[i], "--silent"))
            silent = 1;
        else if (!strcmp(words[i], "--background") && daemon(1, 1))
            return 4;
        else if (!strcmp(words[i], "--user") && setuid(atoi(words[++i])))
            return 5;
    }
    udp = bound(SOCK_DGRAM, port);
    printf("ready, copy %s\n", copy ? copy : "unknown");
    fflush(stdout);
    for (;;) {
        struct sockaddr_in client;
        socklen_t length = sizeof(client);
        ssize_t bytes = recvfrom(udp, buffer, sizeof(buffer), 0, (struct sockaddr *)&client, &length);

        if (silent)
            continue;
        if (bytes >= 0 && answer && copy)
            sendto(udp, copy, strlen(copy), 0, (struct sockaddr *)&client, length);
        else if (bytes >= 0)
            sendto(udp, buffer, bytes, 0, (struct sockaddr *)&client, length);
    }
}
