/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whose process is it? Container and pod by its control groups and by the files
 * that the kubelet keeps on each node, so that no API server is asked; a batch
 * system's job and step by the control groups as well.
 *
 * All of it comes from other people: fields are bounded, and hold nothing but
 * the characters that such names may have.
 */
#ifndef PT_AGENT_OWNER_H
#define PT_AGENT_OWNER_H

#include <stdbool.h>
#include <sys/types.h>

#define PT_OWNER_NAME 254 /* a DNS subdomain, and its end */

struct pt_owner { /* "": not known */
	char runtime[16];   /* docker, containerd, cri-o, podman, lxc */
	char container[72]; /* its id, or its name (lxc) */
	char pod_uid[40];
	char pod[PT_OWNER_NAME], pod_namespace[64], container_name[64];
	char slurm_job[24], slurm_step[24];
	bool kubelet; /* it is in a group of the kubelet's own */
};

/* Fills runtime, container, pod_uid, slurm_job and slurm_step from the text of
 * /proc/PID/cgroup; the rest is cleared. Pods and batch jobs are believed where only
 * the system makes groups, and nowhere else. Pure. */
void pt_owner_cgroup(const char *text, struct pt_owner *o);

/*
 * A name in /var/log/containers (POD_NAMESPACE_CONTAINER-ID.log): fills pod,
 * pod_namespace and container_name where ID is o->container. 0; -ENOENT: it is
 * another's, or no such name. Pure.
 */
int pt_owner_container_log(const char *name, struct pt_owner *o);
/* A name in /var/log/pods (NAMESPACE_POD_UID): fills pod and pod_namespace where
 * UID is o->pod_uid. 0 or -ENOENT. Pure. */
int pt_owner_pod_log(const char *name, struct pt_owner *o);

/* All of the above for a process. `logs`: /var/log, or where a container has
 * the host's. 0, or -errno where its control groups cannot be read. */
int pt_owner_of(pid_t pid, const char *logs, struct pt_owner *o);

#endif
