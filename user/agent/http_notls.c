/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Debian has no static p11-kit, so GnuTLS cannot be linked statically, and
 * libmicrohttpd.a asks for it. These stand in for it in a static program, which says
 * that it serves no TLS before any of them could be called. Only gnutls_global_init()
 * is, when the program starts.
 */
#include "version.h"

#ifdef PT_STATIC

#include <stdlib.h>

int gnutls_global_init(void);
int gnutls_global_init(void)
{
	return 0;
}

extern void *(*gnutls_malloc)(size_t);
void *(*gnutls_malloc)(size_t) = malloc;

#define NONE(name)                                                             \
	int name(void);                                                        \
	int name(void)                                                         \
	{                                                                      \
		return -1;                                                     \
	}

NONE(gnutls_alpn_set_protocols)
NONE(gnutls_bye)
NONE(gnutls_certificate_allocate_credentials)
NONE(gnutls_certificate_free_credentials)
NONE(gnutls_certificate_server_set_request)
NONE(gnutls_certificate_set_dh_params)
NONE(gnutls_certificate_set_retrieve_function2)
NONE(gnutls_certificate_set_retrieve_function3)
NONE(gnutls_certificate_set_x509_key_mem)
NONE(gnutls_certificate_set_x509_key_mem2)
NONE(gnutls_certificate_set_x509_trust_mem)
NONE(gnutls_cipher_get)
NONE(gnutls_credentials_set)
NONE(gnutls_deinit)
NONE(gnutls_dh_params_deinit)
NONE(gnutls_dh_params_import_pkcs3)
NONE(gnutls_dh_params_init)
NONE(gnutls_global_deinit)
NONE(gnutls_handshake)
NONE(gnutls_init)
NONE(gnutls_priority_deinit)
NONE(gnutls_priority_init)
NONE(gnutls_priority_set)
NONE(gnutls_protocol_get_version)
NONE(gnutls_psk_allocate_server_credentials)
NONE(gnutls_psk_free_server_credentials)
NONE(gnutls_psk_set_server_credentials_function)
NONE(gnutls_record_check_pending)
NONE(gnutls_record_get_direction)
NONE(gnutls_record_recv)
NONE(gnutls_record_send)
NONE(gnutls_session_get_ptr)
NONE(gnutls_session_set_ptr)
NONE(gnutls_strerror)
NONE(gnutls_transport_set_int2)

#endif
typedef int pt_http_notls; /* not an empty file elsewhere */
