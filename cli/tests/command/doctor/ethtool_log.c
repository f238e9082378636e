/* Preloaded: writes down which ethtool command each SIOCETHTOOL asks for, which strace does not show. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SIOCETHTOOL 0x8946

int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int, unsigned long, void *);
	va_list list;
	va_start(list, request);
	void *argument = va_arg(list, void *);
	va_end(list);
	if (!next)
		next = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
	if (request == SIOCETHTOOL) {
		char line[32];
		uint32_t command = *(uint32_t *)((struct ifreq *)argument)->ifr_data;
		int length = snprintf(line, sizeof line, "%#x\n", command);
		int log = open(getenv("ETHTOOL_LOG"), O_WRONLY | O_APPEND);
		if (log >= 0) {
			if (write(log, line, length) != length)
				abort();
			close(log);
		}
	}
	return next(fd, request, argument);
}
