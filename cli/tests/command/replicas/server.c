// A server with one UDP socket, which knows nothing of SO_REUSEPORT: returns each datagram.
// server PORT [--control TCP_PORT] [--try] [--second] [--background] [--user UID] [--tcp] [--answer]
//   [--silent] [--address IP]
// With --stateful it is two processes with a socket each (SO_REUSEPORT), and each answers only the
// clients whose first datagram it got, as TURN and QUIC servers do.

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_hangup(int signal) {
    (void)signal;
    write(1, "hangup\n", 7);
}

static int shared;
static in_addr_t ip;

static int bound(int type, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {ip}};
    // A busy machine must not make the tests lose datagrams in full buffers.
    int socket_ = socket(AF_INET, type, 0), bytes = 4 << 20;

    setsockopt(socket_, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
    if (shared)
        setsockopt(socket_, SOL_SOCKET, SO_REUSEPORT, &shared, sizeof(shared));
    if (bind(socket_, (struct sockaddr *)&address, sizeof(address))) {
        perror("bind");
        exit(3);
    }
    if (type == SOCK_STREAM)
        listen(socket_, 16);
    return socket_;
}

// As daemon(3), with a parent that ends when the server is there.
static void go_to_background(void) {
    if (fork()) {
        usleep(300000);
        _exit(0);
    }
    setsid();
}

int main(int count, char **words) {
    const char *copy = getenv("COPY");
    int port = atoi(words[1]), i, udp, answer = 0, silent = 0, self = 1;
    // The process of each client, by its port.
    char buffer[2048], *owner = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    signal(SIGHUP, on_hangup);
    for (i = 2; i < count; i++) {
        if (!strcmp(words[i], "--control"))
            bound(SOCK_STREAM, atoi(words[++i]));
        else if (!strcmp(words[i], "--address"))
            ip = inet_addr(words[++i]);
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
        else if (!strcmp(words[i], "--stateful"))
            shared = 1;
        else if (!strcmp(words[i], "--background"))
            go_to_background();
        else if (!strcmp(words[i], "--user") && setuid(atoi(words[++i])))
            return 5;
    }
    if (shared && !fork()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        self = 2;
    }
    udp = bound(SOCK_DGRAM, port);
    printf("ready, copy %s\n", copy ? copy : "unknown");
    fflush(stdout);
    for (;;) {
        struct sockaddr_in client;
        socklen_t length = sizeof(client);
        ssize_t bytes = recvfrom(udp, buffer, sizeof(buffer), 0, (struct sockaddr *)&client, &length);

        if (shared && !owner[client.sin_port])
            owner[client.sin_port] = self;
        if (silent || (shared && owner[client.sin_port] != self))
            continue;
        if (bytes >= 0 && answer && copy)
            sendto(udp, copy, strlen(copy), 0, (struct sockaddr *)&client, length);
        else if (bytes >= 0)
            sendto(udp, buffer, bytes, 0, (struct sockaddr *)&client, length);
    }
}
