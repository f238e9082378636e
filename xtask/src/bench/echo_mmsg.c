/*
 * The loop that a C programmer would write by hand: an echo with recvmmsg and sendmmsg. The engine's mmsg backend is
 * measured against it. It does the same work: counts, leaves out truncated requests, answers from the address a
 * request came to where it is asked for control data, goes on past replies that cannot be sent.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>

struct echo_counters {
	_Atomic uint64_t received, answered, truncated, failed, batches, syscalls;
};

#define CONTROL CMSG_SPACE(sizeof(struct in_pktinfo))

/* Both are inlined for a constant `pktinfo`, so that nothing is asked for each message that is known before. */
#define INLINE static inline __attribute__((always_inline))

INLINE void rearm(struct mmsghdr *message, size_t size, int pktinfo)
{
	message->msg_hdr.msg_iov->iov_len = size;
	if (pktinfo)
		message->msg_hdr.msg_controllen = CONTROL;
}

#define PUBLISH(field, value) atomic_store_explicit(&counters->field, value, memory_order_relaxed)

INLINE int serve(int fd, unsigned batch, size_t size, int pktinfo, const atomic_int *stop,
		 struct echo_counters *counters)
{
	struct mmsghdr *messages = calloc(batch, sizeof(*messages));
	struct iovec *iovs = calloc(batch, sizeof(*iovs));
	struct sockaddr_in *names = calloc(batch, sizeof(*names));
	char *controls = calloc(batch, CONTROL);
	char *buffers = calloc(batch, size);
	uint64_t received = 0, answered = 0, truncated = 0, failed = 0, batches = 0, syscalls = 0;
	int result = 0;

	if (!messages || !iovs || !names || !controls || !buffers) {
		result = ENOMEM;
		goto out;
	}
	for (unsigned i = 0; i < batch; i++) {
		iovs[i].iov_base = buffers + i * size;
		messages[i].msg_hdr.msg_iov = &iovs[i];
		messages[i].msg_hdr.msg_iovlen = 1;
		messages[i].msg_hdr.msg_name = &names[i];
		messages[i].msg_hdr.msg_namelen = sizeof(names[i]);
		if (pktinfo)
			messages[i].msg_hdr.msg_control = controls + i * CONTROL;
		rearm(&messages[i], size, pktinfo);
	}
	for (;;) {
		int flags = atomic_load_explicit(stop, memory_order_acquire) ? MSG_DONTWAIT : MSG_WAITFORONE;
		int count = recvmmsg(fd, messages, batch, flags, NULL);
		int kept = 0;

		syscalls++;
		if (count < 0) {
			if (errno == EINTR)
				continue;
			if (errno != EAGAIN)
				result = errno;
			break;
		}
		if (messages[0].msg_hdr.msg_namelen == 0) { /* woken by shutdown */
			messages[0].msg_hdr.msg_namelen = sizeof(names[0]);
			rearm(&messages[0], size, pktinfo);
			continue;
		}
		batches++;
		received += count;
		for (int i = 0; i < count; i++) {
			struct mmsghdr *message = &messages[i];

			if (message->msg_hdr.msg_flags & MSG_TRUNC) {
				truncated++;
				continue;
			}
			message->msg_hdr.msg_iov->iov_len = message->msg_len;
			if (pktinfo) {
				struct cmsghdr *header = CMSG_FIRSTHDR(&message->msg_hdr);

				if (header && header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_PKTINFO)
					((struct in_pktinfo *)CMSG_DATA(header))->ipi_ifindex = 0;
				else
					message->msg_hdr.msg_controllen = 0;
			}
			if (kept != i) {
				struct mmsghdr swap = messages[kept];

				messages[kept] = *message;
				*message = swap;
			}
			kept++;
		}
		for (int at = 0; at < kept;) {
			int sent = sendmmsg(fd, messages + at, kept - at, 0);

			syscalls++;
			if (sent >= 0) {
				at += sent;
				answered += sent;
			} else if (errno != EINTR) {
				at++;
				failed++;
			}
		}
		for (int i = 0; i < count; i++)
			rearm(&messages[i], size, pktinfo);
		PUBLISH(received, received);
		PUBLISH(answered, answered);
		PUBLISH(truncated, truncated);
		PUBLISH(failed, failed);
		PUBLISH(batches, batches);
		PUBLISH(syscalls, syscalls);
	}
out:
	free(buffers);
	free(controls);
	free(names);
	free(iovs);
	free(messages);
	return result;
}

/* Serves `fd`, an IPv4 socket, until it is shut down and `stop` is set. Returns 0, or an errno. */
int echo_mmsg(int fd, unsigned batch, size_t size, int pktinfo, const atomic_int *stop,
	      struct echo_counters *counters)
{
	return pktinfo ? serve(fd, batch, size, 1, stop, counters) : serve(fd, batch, size, 0, stop, counters);
}
