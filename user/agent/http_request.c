/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent/http_request.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SPACE " \t"

enum pt_http_file pt_http_evidence(const char *name)
{
	static const struct {
		const char *suffix;
		enum pt_http_file file;
	} all[] = { { ".json", PT_FILE_JSON },
		    { ".html", PT_FILE_HTML },
		    { ".ptrace", PT_FILE_PTRACE } };
	size_t i, n = strspn(name, "0123456789abcdefghijklmnopqrstuvwxyz-");

	if (!n || n > PT_HTTP_ID_MAX)
		return PT_FILE_NONE;
	for (i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!strcmp(name + n, all[i].suffix))
			return all[i].file;
	return PT_FILE_NONE;
}

bool pt_http_bearer(const char *authorization, const char *token, size_t len)
{
	size_t i, n;
	volatile unsigned char differ = 0;

	if (!authorization || !len || strncasecmp(authorization, "Bearer ", 7))
		return false;
	authorization += 7;
	authorization += strspn(authorization, " ");
	n = strlen(authorization);
	for (i = 0; i < n; i++)
		differ |= (unsigned char)(authorization[i] ^ token[i % len]);
	return !differ && n == len;
}

/* The q of the parameters at `s`, up to `end`. 1 where there is none. */
static double weight_of(const char *s, const char *end)
{
	while (s < end) {
		s += strspn(s, SPACE ";");
		if (s < end && (*s == 'q' || *s == 'Q') && s[1] == '=') {
			/* "0.5": no sign, no exponent, no locale */
			double q = 0, digit = 0.1;

			if (s[2] == '1')
				return 1;
			if (s[2] != '0' || s[3] != '.')
				return 0;
			for (s += 4; s < end && *s >= '0' && *s <= '9'; s++) {
				q += (*s - '0') * digit;
				digit /= 10;
			}
			return q;
		}
		while (s < end && *s != ';')
			s++;
	}
	return 1;
}

double pt_http_weight(const char *list, const char *what)
{
	size_t n = strlen(what);
	double best = -1;

	while (list && *list) {
		const char *end;

		list += strspn(list, SPACE ",");
		end = list + strcspn(list, ",");
		if (!strncasecmp(list, what, n) &&
		    (list + n == end || strchr(SPACE ";", list[n]))) {
			double q = weight_of(list + n, end);

			if (q > best)
				best = q;
		}
		list = end;
	}
	return best;
}

bool pt_http_wants_openmetrics(const char *accept)
{
	double open = pt_http_weight(accept, "application/openmetrics-text");
	double text = pt_http_weight(accept, "text/plain");

	return open > 0 && open >= text;
}

int pt_http_address(const char *s, struct sockaddr_storage *sa, socklen_t *len)
{
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)sa;
	struct sockaddr_in *v4 = (struct sockaddr_in *)sa;
	const char *colon = strrchr(s, ':');
	char host[INET6_ADDRSTRLEN + 2], *end;
	unsigned long port;
	size_t n;

	if (!colon || colon[1] < '0' || colon[1] > '9')
		return -EINVAL;
	errno = 0;
	port = strtoul(colon + 1, &end, 10);
	n = (size_t)(colon - s);
	if (errno || *end || port > 65535 || n < 2 || n >= sizeof(host))
		return -EINVAL;
	memset(sa, 0, sizeof(*sa));
	if (*s == '[' && s[n - 1] == ']') {
		memcpy(host, s + 1, n - 2);
		host[n - 2] = '\0';
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)port);
		*len = sizeof(*v6);
		return inet_pton(AF_INET6, host, &v6->sin6_addr) == 1 ? 0 : -EINVAL;
	}
	memcpy(host, s, n);
	host[n] = '\0';
	v4->sin_family = AF_INET;
	v4->sin_port = htons((uint16_t)port);
	*len = sizeof(*v4);
	return inet_pton(AF_INET, host, &v4->sin_addr) == 1 ? 0 : -EINVAL;
}
