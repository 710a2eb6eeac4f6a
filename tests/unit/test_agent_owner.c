/* SPDX-License-Identifier: BSD-2-Clause */
/* Whose process it is, by paths as runtimes make them and by the kubelet's files. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/owner.h"

#define ID "4f8e2b0c5d6a79183f2e1d0c9b8a7f6e5d4c3b2a19087f6e5d4c3b2a1908f7e6"
#define UID "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
#define UID_ "0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9"
#define HASH "0123456789abcdef0123456789abcdef"

static void paths(void **state)
{
	static const struct {
		const char *text, *runtime, *container, *pod, *job, *step;
	} c[] = {
		{ "0::/system.slice/docker-" ID ".scope\n", "docker", ID, "", "", "" },
		{ "12:cpu,cpuacct:/docker/" ID "\n3:memory:/docker/" ID "\n", "docker", ID,
		  "", "", "" },
		{ "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_
		  ".slice/cri-containerd-" ID ".scope\n",
		  "containerd", ID, UID, "", "" },
		{ "0::/kubepods.slice/kubepods-pod" UID_ ".slice/crio-" ID ".scope/x\n",
		  "cri-o", ID, UID, "", "" },
		{ "4:memory:/kubepods/besteffort/pod" UID "/" ID "\n", "", ID,
		  UID, "", "" },
		{ "4:memory:/kubepods/burstable/pod" HASH "/" ID "\n", "", ID,
		  HASH, "", "" },
		{ "1:name=systemd:/system.slice/containerd.service/kubepods-burstable-pod"
		  UID_ ".slice:cri-containerd:" ID "\n",
		  "containerd", ID, UID, "", "" },
		{ "0::/machine.slice/libpod-" ID ".scope/container\n", "podman", ID, "",
		  "", "" },
		{ "0::/lxc.payload.web-1/user.slice\n", "lxc", "web-1", "", "", "" },
		{ "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n", "",
		  "", "", "4711", "0" },
		{ "9:memory:/slurm/uid_1000/job_99/step_batch/task_0\n", "", "", "", "99",
		  "batch" },
		{ "0::/user.slice/user-1000.slice/session-3.scope\n", "", "", "", "", "" },
		{ "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
		  "kubelet-kubepods-besteffort-pod" UID_ ".slice/cri-containerd-" ID
		  ".scope\n", "containerd", ID, UID, "", "" },
		{ "3:cpu:/kubelet/kubepods/burstable/pod" UID "/" ID "\n", "", ID, UID, "",
		  "" },
		/* told from inside of another pod, of another class and of the same */
		{ "0::/../../../kubepods-burstable.slice/kubepods-burstable-pod" UID_
		  ".slice/cri-containerd-" ID ".scope\n", "containerd", ID, UID, "", "" },
		{ "0::/../../kubepods-besteffort-pod" UID_ ".slice/crio-" ID ".scope\n",
		  "cri-o", ID, UID, "", "" },
		{ "2:cpu:/slurm_node7/uid_5/job_7/step_extern\n", "", "", "", "7",
		  "extern" },
		{ "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID
		  ".scope/container\n", "podman", ID, "", "", "" },
		/* a user to whom a group was given, and what he makes below it */
		{ "0::/user.slice/user-1000.slice/user@1000.service/kubepods.slice/"
		  "kubepods-pod" UID_ ".slice/cri-containerd-" ID ".scope\n", "containerd",
		  ID, "", "", "" },
		{ "0::/user.slice/user-1000.slice/user@1000.service/slurm/uid_0/job_1/step_0",
		  "", "", "", "", "" },
		{ "0::/user.slice/user-1000.slice/user@1000.service/system.slice/"
		  "slurmstepd.scope/job_1/step_0\n", "", "", "", "", "" },
		{ "0::/system.slice/job_1/step_0\n", "", "", "", "", "" },
		{ "0::/system.slice/my.service/kubepods-pod" UID_ ".slice/x\n", "", "", "",
		  "", "" },
		{ "0::/../../user.slice/user-1000.slice/kubepods-pod" UID_ ".slice\n", "",
		  "", "", "", "" },
		{ "0::/kubepods/pod" UID "/" ID "/pod" HASH "/" HASH HASH "\n", "", ID, UID,
		  "", "" },
		{ "1:name=systemd:/user.slice/a/docker-" HASH HASH ".scope\n"
		  "0::/kubepods/pod" UID "/" ID "\n", "", ID, UID, "", "" },
		{ "0::/slurm/uid_1/job_5/step_0/job_6/step_1\n", "", "", "", "5", "0" },
		/* what others may name their groups */
		{ "0::/docker-" ID "0.scope\n", "", "", "", "", "" },
		{ "0::/docker-" ID "\n", "docker", ID, "", "", "" },
		{ "0::/job_4711x/step_0\n", "", "", "", "", "" },
		{ "0::/step_0\n", "", "", "", "", "" },
		{ "0::/lxc.payload.a\"b\n", "", "", "", "", "" },
		{ "0::/kubepods-pod\n", "", "", "", "", "" },
		{ "0::/pod0a1b2c3d-4e5f\n", "", "", "", "", "" },
		{ "", "", "", "", "", "" },
		{ "0::", "", "", "", "", "" },
		{ ":::::\n\n/", "", "", "", "", "" },
	};
	struct pt_owner o;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(c) / sizeof(*c); i++) {
		pt_owner_cgroup(c[i].text, &o);
		if (strcmp(o.runtime, c[i].runtime)) fail_msg("%s: %s", c[i].text, o.runtime);
		assert_string_equal(o.container, c[i].container);
		assert_string_equal(o.pod_uid, c[i].pod);
		assert_string_equal(o.slurm_job, c[i].job);
		assert_string_equal(o.slurm_step, c[i].step);
	}
}

static void kubelet_names(void **state)
{
	struct pt_owner o;

	(void)state;
	pt_owner_cgroup("0::/kubepods/pod" UID "/" ID "\n", &o);
	assert_int_equal(pt_owner_container_log("train-0_ml_main-" ID ".log", &o), 0);
	assert_string_equal(o.pod, "train-0");
	assert_string_equal(o.pod_namespace, "ml");
	assert_string_equal(o.container_name, "main");
	/* another's, and what is no such name */
	assert_int_equal(pt_owner_container_log("a_b_c-" HASH HASH ".log", &o), -ENOENT);
	assert_int_equal(pt_owner_container_log("a_b-" ID ".log", &o), -ENOENT);
	assert_int_equal(pt_owner_container_log("a\"_b_c-" ID ".log", &o), -ENOENT);
	assert_string_equal(o.pod, "");
	assert_int_equal(pt_owner_container_log("__-" ID ".log", &o), -ENOENT);
	assert_int_equal(pt_owner_container_log("-" ID ".log", &o), -ENOENT);
	assert_int_equal(pt_owner_container_log(ID ".log", &o), -ENOENT);
	assert_int_equal(pt_owner_pod_log("ml_train-0_" UID, &o), 0);
	assert_string_equal(o.pod, "train-0");
	assert_string_equal(o.pod_namespace, "ml");
	assert_int_equal(pt_owner_pod_log("ml_" UID, &o), -ENOENT);
	assert_int_equal(pt_owner_pod_log("ml_train-0_" HASH, &o), -ENOENT);
	assert_int_equal(pt_owner_pod_log("", &o), -ENOENT);
	memset(&o, 0, sizeof(o));
	assert_int_equal(pt_owner_pod_log("ml_train-0_", &o), -ENOENT);
}

static void of_a_process(void **state)
{
	struct pt_owner o;

	(void)state;
	assert_int_equal(pt_owner_of(getpid(), "/nowhere", &o), 0);
	assert_string_equal(o.pod, "");
	assert_true(pt_owner_of(0x3fffff, "/nowhere", &o) < 0);
	assert_string_equal(o.container, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths),
		cmocka_unit_test(kubelet_names),
		cmocka_unit_test(of_a_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
