# SPDX-License-Identifier: BSD-2-Clause
#
# pipetrace: see "make help". Everything that is built lies under build/.

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

VERSION := 0.1.0
PREFIX ?= /usr/local
DESTDIR ?=
# What it is built for: x86 or arm64. For another one than this machine's it is cross-built,
# with what is linked from tools/sysroot (docs/arm64.md).
HOST_ARCH := $(patsubst aarch64,arm64,$(patsubst x86_64,x86,$(shell uname -m)))
ARCH := $(HOST_ARCH)
CROSS := $(filter-out $(HOST_ARCH),$(ARCH))
TRIPLE := $(if $(filter arm64,$(ARCH)),aarch64,x86_64)-linux-gnu
SYSROOT := $(CROSS:%=build/sysroot/%)
# Another output folder, so that two builds do not disturb each other.
B := build$(CROSS:%=/%)
# V=1 shows whole commands.
Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-8s%s\n' '$(1)' '$@')

# ---- tools ------------------------------------------------------------------
ifeq ($(origin CC),default)
CC := $(if $(CROSS),$(TRIPLE)-gcc --sysroot=$(SYSROOT),gcc)
endif
ifeq ($(origin AR),default)
AR := $(CROSS:%=$(TRIPLE)-)ar
endif
CLANG ?= clang
# Debian keeps bpftool in /usr/sbin, which an ordinary user's PATH lacks.
PROTOC_C ?= protoc-c
BPFTOOL ?= $(firstword $(wildcard /usr/sbin/bpftool /sbin/bpftool) bpftool)
INSTALL ?= install
MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null)

# ---- flags ------------------------------------------------------------------
# Given on the command line or in the environment, CFLAGS and LDFLAGS only add.
# _GNU_SOURCE is defined empty, so that a file's own "#define" is no conflict.
WARN := -Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes -Wdate-time
WARN += $(if $(filter 1,$(WERROR)),-Werror)
CPP := -D_GNU_SOURCE= -Ibpf -Iuser -I$(B)
# The same files in whatever folder: its name gets into none of them, not even where
# the shell came here by a link (tools/check-reproducible).
export PWD := $(CURDIR)
SAME := -ffile-prefix-map='$(CURDIR)'=.
CBASE := -std=gnu11 -g $(SAME) -fno-strict-aliasing -fno-common -pthread $(WARN)
# The highest level that compiler and C library do without a warning.
FORTIFY := $(firstword $(foreach n,3 2,$(if $(shell echo '\#include <stdio.h>' | $(CC) -O2 \
	-D_FORTIFY_SOURCE=$n -E -x c -o /dev/null - 2>&1),,$n)))
HARDEN := -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$(or $(FORTIFY),2) -fstack-protector-strong \
	-fstack-clash-protection $(if $(filter arm64,$(ARCH)),-mbranch-protection=standard,-fcf-protection=full)
SANITIZE := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
	    -fno-sanitize-recover=undefined

comma := ,
LIBS := -lbpf -lelf -lz -lzstd -ljansson -liberty -lprotobuf-c -lsqlite3 -lncursesw -ltinfo -lmicrohttpd -linih -lcap -lseccomp -lm
ifeq ($(ARCH),x86)
# Of the archive only x86 is taken (user/capture/entry_x86.c); the library has all processors.
LIBS += $(if $(findstring /,$(shell $(CC) -print-file-name=libcapstone.a)),-l:libcapstone.a,-lcapstone)
endif
ifeq ($(STATIC),1)
# At another address each time, too, where the C library has what that begins with.
STATIC_PIE := $(findstring /,$(shell $(CC) -print-file-name=rcrt1.o))
LINK := $(if $(STATIC_PIE),-static-pie -Wl$(comma)-z$(comma)relro$(comma)-z$(comma)now,-static -no-pie)
PIE := $(if $(STATIC_PIE),-fPIE,-fno-pie)
else
LINK := -pie -Wl,-z,relro,-z,now
PIE := -fPIE
endif
ifeq ($(SAN),1)
OPT := $(SANITIZE)
LINK += $(SANITIZE)
else
OPT := $(HARDEN)
endif

BPF_WARN := -Wall -Wextra -Wno-unused-parameter $(if $(filter 1,$(WERROR)),-Werror)
BPF_CFLAGS := -g $(SAME) -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_$(ARCH) -Ivmlinux -Ibpf $(BPF_WARN)

# ---- sources ----------------------------------------------------------------
# ROOMS="base model" limits the build to some directories of user/, to work on
# one room while another does not compile.
ROOMS ?=
SRCS := $(sort $(shell find $(if $(ROOMS),$(addprefix user/,$(ROOMS)),user) -name '*.c' 2>/dev/null))
# What is loaded into a target is built apart.
SRCS := $(filter-out user/inject/agent/%,$(SRCS))
# Made from formats' descriptions: user/view/timeline/perfetto.proto, user/agent/otlp.proto.
PROTO := $(if $(filter user/view/timeline/perfetto.c,$(SRCS)),$(B)/perfetto.pb-c)
PROTO += $(if $(filter user/agent/otlp_parts.c,$(SRCS)),$(B)/otlp.pb-c)
OBJS := $(SRCS:%.c=$(B)/obj/%.o) $(PROTO:%=%.o)
SAN_OBJS := $(filter-out %/user/main.o,$(SRCS:%.c=$(B)/san/%.o)) $(PROTO:%=%.o)
# The rooms without I/O, clock or kernel, and all that they may lean on.
PURE_SRCS := $(filter user/model/% user/analysis/%,$(SRCS))
PURE_BASE := $(filter user/base/arena.c user/base/fsname.c user/base/records.c user/gpu/api.c user/report/report.c user/report/fields.c user/report/rowsort.c user/report/diff.c,$(SRCS))

BPF_SRCS := $(sort $(wildcard bpf/*.bpf.c))
BPF_OBJS := $(BPF_SRCS:bpf/%.bpf.c=$(B)/bpf/%.bpf.o)
SKEL := $(B)/pipetrace.skel.h

SIM_LIB_SRCS := $(sort $(wildcard tools/sim/cudart*.c))
SIM_JOB_SRCS := $(sort $(wildcard tools/sim/job*.c))
SIM := $(if $(SIM_LIB_SRCS),$(B)/sim/libcudart.so.12 $(B)/sim/libcudart.so.13)
SIM += $(if $(SIM_JOB_SRCS),$(B)/sim/simjob)

# A random GPU program for tests/e2e/gpubusy.py; it opens the libraries by itself.
SIM_GPUJOB_SRCS := $(sort $(wildcard tools/sim/gpujob*.c))
SIM_GPUJOB := $(if $(SIM_GPUJOB_SRCS),$(B)/sim/gpujob)

# The other GPU libraries' stand-ins, in a directory of their own: its libcudart
# goes on to its libcuda.
SIM_CUDA := $(if $(SIM_LIB_SRCS),$(addprefix $(B)/sim/cuda/,libcuda.so.1 \
	libcudart.so.12 libamdhip64.so.6 libnccl.so.2 libnvidia-ml.so.1 libcupti.so.12 libcupti.so.13 \
	libnvToolsExt.so.1))

UNIT_SRCS := $(sort $(wildcard tests/unit/test_*.c))
UNIT := $(UNIT_SRCS:tests/unit/%.c=$(B)/tests/%)
# Other files there are for any of the tests to use.
UNIT_SHARED := $(filter-out $(UNIT_SRCS),$(sort $(wildcard tests/unit/*.c)))
UNIT_SHARED_OBJS := $(UNIT_SHARED:%.c=$(B)/san/%.o)
# Programs of the live tests: each one file, linked with the program's rooms.
E2E_SRCS := $(sort $(wildcard tests/e2e/*.c))
E2E := $(E2E_SRCS:tests/e2e/%.c=$(B)/tests/e2e/%)
# The fuzz targets, for libFuzzer (tests/fuzz/fuzz) or without it (tests/fuzz/run).
FUZZ_SRCS := $(sort $(wildcard tests/fuzz/*.c))
FUZZ_OBJS := $(FUZZ_SRCS:%.c=$(B)/san/%.o)
# What tests/fuzz stands in for.
FUZZ_WRAP := open openat fopen setmntent pt_seccomp_filter usleep pt_libcurl_load pt_queue_record \
	pt_mapped_open pt_elf_symbols pt_elf_objects pt_elf_dyn \
	pt_http_client_of pt_http_local_trusts MHD_get_connection_info \
	MHD_lookup_connection_value MHD_queue_response
# How fast records become a diagnosis: linked with the program's rooms.
BENCH_SRCS := $(sort $(wildcard tests/bench/*.c))

.PHONY: all program demo test check analyze sbom kernels bench dist install uninstall help clean deps unit e2e purity sim bpf FORCE
FORCE:

all: $(B)/pipetrace $(SIM) $(SIM_CUDA) $(SIM_GPUJOB) $(B)/libpipetrace_agent.so
# What is installed, and what the demo needs; the other stand-ins are for tests.
program: $(B)/pipetrace $(SIM) $(B)/libpipetrace_agent.so
sim: $(SIM) $(SIM_CUDA) $(SIM_GPUJOB)
bpf: $(SKEL) $(B)/bpf/abi.ok

help:
	@echo 'make              build/pipetrace, the simulated GPU runtime and its job'
	@echo 'make demo         install missing packages, build, trace a demo training job (root)'
	@echo 'make test         install missing packages, build, run every test (root)'
	@echo 'make check        the tests that need no root: unit, purity, golden'
	@echo 'make analyze      static analysis of user/ and bpf/: clang and gcc'
	@echo 'make sbom         build/pipetrace.spdx.json: what the program is made of'
	@echo 'make kernels      the read doors on Debian kernels in emulated machines (root)'
	@echo 'make bench        what it costs, and how fast it is (root); QUICK=1 ONLY=PART,... PAIRS=N JSON=FILE'
	@echo 'make dist         build/dist: packages of HEAD and static programs, for x86-64 and arm64'
	@echo 'make install      DESTDIR= PREFIX=$(PREFIX)'
	@echo 'make uninstall    remove what install put there'
	@echo 'make deps         install what the build and the tests need (apt)'
	@echo 'make clean        remove build/'
	@echo 'Parts: bpf, sim, unit, e2e, purity.  Options: STATIC=1 (one static binary),'
	@echo 'WERROR=1 (warnings are errors), SAN=1 (address and undefined sanitizers),'
	@echo 'ARCH=arm64 (cross-built, after tools/sysroot arm64),'
	@echo 'ROOMS="base model" (only these directories of user/), V=1, B=, CC=, CLANG=, CFLAGS=.'

# ---- flags are a dependency: another set of flags rebuilds what it touches ----
# Settled while the Makefile is read, so that "make -q" is right; with -n and -q
# nothing is written. stamp: $(1) file, $(2) content.
DRY := $(findstring n,$(filter-out --%,$(firstword -$(MAKEFLAGS))))$(findstring q,$(filter-out \
	--%,$(firstword -$(MAKEFLAGS))))
define stamp
$(if $(findstring <$(file <$(1))>,<$(2)>),,$(if $(DRY),$(eval $(1): FORCE ; @: other flags),$(shell \
	mkdir -p $(dir $(1)))$(file >$(1),$(2))))
endef
PAGE := $(B)/html/page.html
UPLOT := build/npm-page/node_modules/uplot
PAGE_SRCS := $(wildcard user/view/html/page/*) user/report/evidence.def
# Facts of the build that a few files need; only those are rebuilt with it.
CONFIG := $(B)/version.h
define CONFIG_TEXT
/* made by the Makefile */
\#define PT_VERSION "$(VERSION)"
$(if $(filter 1,$(STATIC)),\#define PT_STATIC 1)
\#define PT_LIBEXECDIR "$(PREFIX)/libexec/pipetrace"
endef

ifneq ($(if $(MAKECMDGOALS),$(filter-out help clean deps uninstall,$(MAKECMDGOALS)),all),)
$(call stamp,$(B)/.flags.cc,$(CC) $(CPP) $(CBASE) $(OPT) $(PIE) $(CFLAGS))
$(call stamp,$(B)/.flags.san,$(CC) $(CPP) $(CBASE) $(SANITIZE) $(CFLAGS))
$(call stamp,$(B)/.flags.link,$(CC) $(LINK) $(LDFLAGS) $(LIBS) $(OBJS) map)
$(call stamp,$(B)/.flags.ar,$(SAN_OBJS) $(UNIT_SHARED_OBJS))
$(call stamp,$(B)/.flags.bpf,$(CLANG) $(BPF_CFLAGS) $(BPF_OBJS))
$(call stamp,$(B)/.flags.sim,$(CC) $(CBASE) $(CFLAGS) $(SIM_LIB_SRCS) $(SIM_JOB_SRCS) $(SIM_CUDA))
$(call stamp,$(B)/.flags.page,$(wildcard $(UPLOT)/dist/uPlot.iife.min.js) $(PAGE_SRCS))
$(call stamp,$(CONFIG),$(subst \#,#,$(CONFIG_TEXT)))
endif

# ---- BPF --------------------------------------------------------------------
$(B)/bpf/%.bpf.o: bpf/%.bpf.c $(B)/.flags.bpf
	@mkdir -p $(@D)
	$(call say,BPF)
	$(Q)$(CLANG) $(BPF_CFLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

# Records must have no hidden padding, in either world.
$(B)/bpf/abi.ok: bpf/abi.h bpf/records.def
	@mkdir -p $(@D)
	$(call say,ABI)
	$(Q)$(CC) -x c -std=gnu11 -Wall -Wextra -Wpadded -Werror -fsyntax-only $<
	$(Q)$(CLANG) -x c -std=gnu11 -target bpf $(addprefix -idirafter $(SYSROOT)/usr/include/,$(MULTIARCH)) \
		-Wall -Wextra -Wpadded -Werror -fsyntax-only $<
	@touch $@

$(B)/bpf/pipetrace.o: $(BPF_OBJS) $(B)/bpf/abi.ok
	$(call say,BPFLINK)
	$(Q)$(BPFTOOL) gen object $@ $(BPF_OBJS)

$(SKEL): $(B)/bpf/pipetrace.o
	$(call say,SKEL)
	$(Q)$(BPFTOOL) gen skeleton $< name pipetrace_bpf > $@

# ---- program ----------------------------------------------------------------
# The skeleton must exist before the only room that includes it compiles; which
# files depend on it from then on is known from the .d files.
CAPTURE_OBJS := $(foreach o,$(OBJS) $(SAN_OBJS),$(if $(findstring /user/capture/,$o),$o))
$(CAPTURE_OBJS): | $(if $(BPF_SRCS),$(SKEL))

# protobuf-c's own code, with its own idea of warnings and alignment.
$(B)/perfetto.pb-c.c: user/view/timeline/perfetto.proto
$(B)/otlp.pb-c.c: user/agent/otlp.proto
$(B)/%.pb-c.c:
	@mkdir -p $(@D)
	$(call say,PROTO)
	$(Q)$(PROTOC_C) --c_out=$(@D) -I$(<D) $(<F)
$(B)/%.pb-c.o: $(B)/%.pb-c.c $(B)/.flags.cc
	$(call say,CC)
	$(Q)$(CC) $(CPP) $(filter-out $(WARN),$(CBASE)) $(OPT) $(PIE) $(CFLAGS) -MMD -MP -c $< -o $@
PROTO_USERS := user/view/timeline/perfetto.o user/view/timeline/perfetto_out.o \
	$(addprefix user/agent/otlp_,parts.o metrics.o logs.o)
$(PROTO_USERS:%=$(B)/obj/%) $(PROTO_USERS:%=$(B)/san/%): | $(strip $(PROTO:%=%.c))

$(B)/obj/%.o: %.c $(B)/.flags.cc | $(CONFIG)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPP) $(CBASE) $(OPT) $(PIE) $(CFLAGS) -MMD -MP -c $< -o $@

$(B)/pipetrace: $(OBJS) $(B)/.flags.link
	$(call say,LINK)
	$(Q)$(CC) $(LINK) -pthread $(OBJS) $(LDFLAGS) $(LIBS) -Wl,-Map=$@.map -o $@

# ---- simulated GPU ----------------------------------------------------------
$(B)/sim/obj12/%.o: tools/sim/%.c $(B)/.flags.sim
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -D_GNU_SOURCE= -DSIM_CUDART_MAJOR=12 -DSIM_CUPTI_MAJOR=12 $(CBASE) -O2 -fPIC $(CFLAGS) -MMD -MP -c $< -o $@

$(B)/sim/obj13/%.o: tools/sim/%.c $(B)/.flags.sim
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -D_GNU_SOURCE= -DSIM_CUDART_MAJOR=13 -DSIM_CUPTI_MAJOR=13 $(CBASE) -O2 -fPIC $(CFLAGS) -MMD -MP -c $< -o $@

# Symbols carry the version that NVIDIA's runtime gives them.
$(B)/sim/libcudart.so.%: $(B)/.flags.sim
	@mkdir -p $(@D)
	@printf 'libcudart.so.%s {\n\tglobal: *;\n};\n' $* > $(@D)/cudart$*.map
	$(call say,SIMLIB)
	$(Q)$(CC) -shared -pthread -Wl,-soname,libcudart.so.$* -Wl,--version-script=$(@D)/cudart$*.map \
		$(filter %.o,$^) $(LDFLAGS) -lm -o $@
$(B)/sim/libcudart.so.12: $(SIM_LIB_SRCS:tools/sim/%.c=$(B)/sim/obj12/%.o)
$(B)/sim/libcudart.so.13: $(SIM_LIB_SRCS:tools/sim/%.c=$(B)/sim/obj13/%.o)

# It opens the libraries beside it by itself.
$(B)/sim/simjob: $(SIM_JOB_SRCS:tools/sim/%.c=$(B)/sim/obj12/%.o) | $(B)/sim/libcudart.so.12
	$(call say,LINK)
	$(Q)$(CC) -pthread $(filter %.o,$^) $(LDFLAGS) -ldl -lm -o $@

$(B)/sim/gpujob: $(SIM_GPUJOB_SRCS:tools/sim/%.c=$(B)/sim/obj12/%.o) | $(B)/sim/libcudart.so.12
	$(call say,LINK)
	$(Q)$(CC) -pthread $(filter %.o,$^) $(LDFLAGS) -ldl -lm -o $@

# Stripped: a probe must find the exported names, not those of the device that
# the library carries.
SIM_CORE := $(SIM_LIB_SRCS:tools/sim/%.c=$(B)/sim/obj12/%.o)
sim_cuda_lib = $(Q)$(CC) -shared -pthread -s -Wl,-soname,$(@F) \
	-Wl,--version-script=$(@D)/$(@F).map -Wl,--enable-new-dtags,-rpath,'$$ORIGIN'
sim_export = $(Q)mkdir -p $(@D); printf '{\n\tglobal: $(1);\n\tlocal: *;\n};\n' > $(@D)/$(@F).map
$(B)/sim/cuda/libcuda.so.1: $(SIM_CORE) $(B)/sim/obj12/cuda_driver.o $(B)/.flags.sim
	$(call sim_export,cu[A-Z]*; ptsim_*)
	$(call say,SIMLIB)
	$(sim_cuda_lib) $(filter %.o,$^) $(LDFLAGS) -lm -o $@
$(B)/sim/cuda/libamdhip64.so.6: $(SIM_CORE) $(B)/sim/obj12/hip.o $(B)/.flags.sim
	$(call sim_export,hip*; ptsim_*)
	$(call say,SIMLIB)
	$(sim_cuda_lib) $(filter %.o,$^) $(LDFLAGS) -lm -o $@
# Functions begin as those of the real libraries do: a probe on a push costs the
# kernel no single step. And a runtime is still there while its driver works.
SIM_FRAMES := $(SIM_CORE) $(SIM_LIB_SRCS:tools/sim/%.c=$(B)/sim/obj13/%.o) \
	$(addprefix $(B)/sim/obj12/,cuda_driver.o hip.o nccl.o over_runtime.o)
$(SIM_FRAMES): private CBASE += -fno-omit-frame-pointer -fno-optimize-sibling-calls -fno-shrink-wrap
$(B)/sim/cuda/libcudart.so.12: $(B)/sim/obj12/over_runtime.o $(B)/sim/cuda/libcuda.so.1 $(B)/.flags.sim
	@printf 'libcudart.so.12 {\n\tglobal: cuda*;\n\tlocal: *;\n};\n' > $(@D)/$(@F).map
	$(call say,SIMLIB)
	$(sim_cuda_lib) $(filter %.o,$^) -L$(@D) -l:libcuda.so.1 $(LDFLAGS) -o $@
# A runtime that is linked into a program, as nvcc does: with symbols, and
# without any; over the driver's stand-in.
SIM_FIND := $(addprefix $(B)/sim/cuda/,findjob findjob_static findjob_stripped)
$(B)/sim/obj12/findjob_static.o: tools/sim/findjob.c $(B)/.flags.sim
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -D_GNU_SOURCE= -DFINDJOB_STATIC $(CBASE) -O2 -fPIC $(CFLAGS) -MMD -MP -c $< -o $@
$(B)/sim/cuda/libcudart_static.a: $(B)/sim/obj12/over_runtime.o $(B)/.flags.sim
	@mkdir -p $(@D)
	$(call say,AR)
	$(Q)$(AR) rcs $@ $(filter %.o,$^)
$(B)/sim/cuda/findjob: $(B)/sim/obj12/findjob.o $(B)/.flags.sim
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) -pthread $(filter %.o,$^) $(LDFLAGS) -ldl -o $@
$(B)/sim/cuda/findjob_static: $(B)/sim/obj12/findjob_static.o $(B)/sim/cuda/libcudart_static.a $(B)/sim/cuda/libcuda.so.1
	$(call say,LINK)
	$(Q)$(CC) -pthread $< $(@D)/libcudart_static.a -Wl,--exclude-libs,ALL -L$(@D) -l:libcuda.so.1 \
		-Wl,--enable-new-dtags,-rpath,'$$ORIGIN' $(LDFLAGS) -ldl -o $@
$(B)/sim/cuda/findjob_stripped: $(B)/sim/cuda/findjob_static
	$(Q)strip -o $@ $<
$(B)/sim/cuda/libnccl.so.2: $(B)/sim/obj12/nccl.o $(B)/.flags.sim
	$(call sim_export,nccl*)
	$(call say,SIMLIB)
	$(sim_cuda_lib) $(filter %.o,$^) $(LDFLAGS) -o $@
$(B)/sim/cuda/libnvToolsExt.so.1: $(B)/sim/obj12/nvtx.o $(B)/.flags.sim
	$(call sim_export,nvtx*)
	$(call say,SIMLIB)
	$(sim_cuda_lib) $(filter %.o,$^) $(LDFLAGS) -o $@

# It finds the device of the process by itself.
SIM_CUPTI := $(addprefix $(B)/sim/obj%/,cupti.o cupti_buffers.o)
.SECONDARY: $(foreach v,12 13,$(subst %,$v,$(SIM_CUPTI)))
$(B)/sim/cuda/libcupti.so.%: $(SIM_CUPTI) $(B)/.flags.sim
	$(call sim_export,cupti*)
	$(call say,SIMLIB)
	$(sim_cuda_lib) $(filter %.o,$^) $(LDFLAGS) -o $@

# ---- agent ------------------------------------------------------------------
# The library that is brought into a target: nothing but old names of libc, no
# constructor; it may be loaded by whatever glibc the target has.
AGENT := $(B)/libpipetrace_agent.so
AGENT_SRCS := $(sort $(wildcard user/inject/agent/*.c))
AGENT_OBJS := $(AGENT_SRCS:%.c=$(B)/agent/%.o)
AGENT_CFLAGS := -D_GNU_SOURCE= -Ibpf -Iuser -std=gnu11 -g $(SAME) -O2 -fPIC -fvisibility=hidden \
	-fno-strict-aliasing -fno-stack-protector -fno-builtin-printf $(WARN)
$(B)/agent/%.o: %.c $(B)/.flags.cc
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(AGENT_CFLAGS) -MMD -MP -c $< -o $@
$(AGENT): $(AGENT_OBJS)
	$(call say,AGENT)
	$(Q)$(CC) -shared -nostartfiles -Wl,-soname,libpipetrace_agent.so -Wl,-z,relro,-z,now \
		-Wl,-z,noexecstack -Wl,--hash-style=both $^ -lc -o $@
# Its bytes are a part of the program.
BLOB := user/inject/agent_blob
# A static program cannot open libnvidia-ml: it carries one along that can.
NVML_HELPER := $(B)/nvml_helper
$(NVML_HELPER): user/gpu/nvml_child.c user/gpu/nvml.h user/gpu/nvml_int.h bpf/abi.h bpf/records.def $(B)/.flags.cc | $(CONFIG)
	$(call say,LINK)
	$(Q)$(CC) $(CPP) -DPT_NVML_HELPER $(CBASE) $(HARDEN) -fPIE -pie $< -o $@
ifeq ($(STATIC),1)
NVML_BLOB := $(B)/obj/user/gpu/nvml_blob.o $(B)/san/user/gpu/nvml_blob.o
$(NVML_BLOB): $(NVML_HELPER)
$(NVML_BLOB): private CPP += -DPT_NVML_FILE='"$(NVML_HELPER)"'
endif
$(B)/obj/$(BLOB).o $(B)/san/$(BLOB).o: $(AGENT)
$(B)/obj/$(BLOB).o $(B)/san/$(BLOB).o: private CPP += -DPT_AGENT_SO='"$(AGENT)"'
# The HTML page without its data, of the program, too. uPlot is there when
# tools/get-npm brought it; this build never goes to the network.
$(PAGE): $(PAGE_SRCS) tools/html-page $(B)/.flags.page
	@mkdir -p $(@D)
	$(call say,PAGE)
	$(Q)tools/html-page user/view/html/page $(UPLOT) > $@
$(B)/obj/user/view/html/blob.o $(B)/san/user/view/html/blob.o: $(PAGE)
$(B)/obj/user/view/html/blob.o $(B)/san/user/view/html/blob.o: private CPP += -DPT_HTML_FILE='"$(PAGE)"'
# Loaded by whoever watches the devices, not by the job.
$(B)/sim/cuda/libnvidia-ml.so.1: $(B)/sim/obj12/nvml.o $(B)/.flags.sim
	$(call sim_export,nvml*)
	$(call say,SIMLIB)
	$(sim_cuda_lib) $(filter %.o,$^) $(LDFLAGS) -o $@

# ---- tests ------------------------------------------------------------------
$(B)/san/%.o: %.c $(B)/.flags.san | $(CONFIG)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPP) $(CBASE) $(SANITIZE) $(CFLAGS) -MMD -MP -c $< -o $@

$(B)/san/libpipetrace.a: $(SAN_OBJS) $(B)/.flags.ar
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $(SAN_OBJS)

# The whole program, sanitized: for damaged recordings.
$(B)/san/pipetrace: $(B)/san/user/main.o $(B)/san/libpipetrace.a
	$(call say,LINK)
	$(Q)$(CC) $(SANITIZE) -pthread $^ $(LDFLAGS) $(LIBS) -o $@

$(B)/san/libunit.a: $(UNIT_SHARED_OBJS) $(B)/.flags.ar
	@rm -f $@
	$(Q)$(AR) rcs $@ $(UNIT_SHARED_OBJS)

$(B)/tests/%: $(B)/san/tests/unit/%.o $(B)/san/libunit.a $(B)/san/libpipetrace.a
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(SANITIZE) -pthread -Wl,-u,unit_case $^ -Wl,-rpath,'$$ORIGIN/../sim' $(LDFLAGS) -lcmocka $(LIBS) -o $@
$(FUZZ_OBJS): private CPP += -Itests/unit
$(B)/fuzz-targets: $(FUZZ_OBJS) $(B)/san/libunit.a $(B)/san/libpipetrace.a
	$(call say,LINK)
	$(Q)$(CC) $(SANITIZE) -pthread $^ $(FUZZ_WRAP:%=-Wl,--wrap=%) $(LDFLAGS) $(LIBS) -o $@
.SECONDARY: $(UNIT_SRCS:%.c=$(B)/san/%.o) $(E2E_SRCS:%.c=$(B)/obj/%.o)

# What some tests need beside the rooms.
$(UNIT_SRCS:%.c=$(B)/san/%.o): | $(SKEL)
$(filter $(B)/tests/test_sim%,$(UNIT)): $(B)/sim/libcudart.so.13
$(filter $(B)/tests/test_sim_nvml,$(UNIT)): | $(B)/sim/cuda/libnvidia-ml.so.1

$(B)/libpipetrace.a: $(filter-out %/user/main.o,$(OBJS)) $(B)/.flags.link
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $(filter %.o,$^)

$(B)/tests/e2e/%: $(B)/obj/tests/e2e/%.o $(B)/libpipetrace.a
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) -pthread $^ $(LDFLAGS) $(E2E_LIBS) $(LIBS) -o $@
# Many agents in one process.
$(B)/fleet/simulate: $(B)/obj/tools/fleet/simulate.o $(B)/libpipetrace.a
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) -pthread $^ $(LDFLAGS) $(LIBS) -o $@
# A file system in user space that is slow on purpose.
$(B)/tests/e2e/slowfs $(B)/obj/tests/e2e/slowfs.o: private CPP += $(shell pkg-config --cflags fuse3 2>/dev/null)
$(B)/tests/e2e/slowfs: private E2E_LIBS = $(shell pkg-config --libs fuse3 2>/dev/null)

# Targets of the injector: nothing of the program is in them.
$(B)/tests/e2e/hazards $(B)/tests/e2e/attacker: $(B)/tests/e2e/%: tests/e2e/%.c $(B)/.flags.cc
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -D_GNU_SOURCE= $(CBASE) -O2 $(CFLAGS) $< $(LDFLAGS) -ldl -o $@

BENCH := $(addprefix $(B)/tests/bench/,replay grow work)
$(BENCH): $(B)/tests/bench/%: $(B)/obj/tests/bench/%.o $(B)/obj/tests/bench/repeat.o $(B)/libpipetrace.a
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) -pthread $^ $(LDFLAGS) $(LIBS) -o $@
$(BENCH_SRCS:%.c=$(B)/obj/%.o): private CPP += -Itests
$(BENCH_SRCS:%.c=$(B)/obj/%.o): | $(SKEL)

# Stand-ins for the agent: one that can be unloaded, one that says it cannot.
INJECT_AGENTS := $(addprefix $(B)/tests/inject/,agent.so agent_stays.so)
$(B)/tests/inject/agent_stays.so: private CPP += -DAGENT_STAYS=1
$(INJECT_AGENTS): tests/inject/agent.c user/inject/agent/agent.h bpf/abi.h bpf/records.def $(B)/.flags.cc
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPP) $(CBASE) -O2 -fPIC -fvisibility=hidden -shared $(CFLAGS) $< -o $@

# Programs of the kernel matrix: they run in guests, so build them with STATIC=1.
KERNELS := $(addprefix $(B)/tests/kernels/,reads doors cost pystack)
SWITCHES := $(B)/tests/kernels/switches
$(B)/tests/kernels/reads: $(B)/obj/tests/kernels/ways.o
$(B)/tests/kernels/doors $(B)/tests/kernels/cost $(SWITCHES): $(B)/obj/tests/kernels/job.o
$(B)/tests/kernels/%: $(B)/obj/tests/kernels/%.o $(B)/libpipetrace.a
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LINK) -pthread $^ $(LDFLAGS) $(LIBS) -o $@

unit: $(UNIT) $(B)/fuzz-targets
e2e: $(INJECT_AGENTS)
e2e: $(E2E) $(SIM_FIND) $(B)/fleet/simulate $(B)/san/pipetrace

# One relocatable object of the pure rooms; the check reads its undefined symbols.
$(B)/tests/pure.o: $(PURE_SRCS:%.c=$(B)/obj/%.o) $(PURE_BASE:%.c=$(B)/obj/%.o)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) -r -nostdlib $^ -o $@

purity: $(B)/tests/pure.o
	tests/purity/run $<

deps:
	tools/install-deps build test
	@tools/get-npm test

check: all unit $(if $(PURE_SRCS),$(B)/tests/pure.o)
	tests/run --no-root

test:
	@rm -f $(B)/tests/summary
	tools/install-deps build test
	@tools/get-npm test
	$(MAKE) all unit e2e $(KERNELS) $(if $(PURE_SRCS),$(B)/tests/pure.o)
	tests/run

# Static analysis, apart from the build: what the analyzers read must be there before.
analyze: $(SKEL) $(PROTO:%=%.c) $(CONFIG)
	CC="$(CC)" CLANG="$(CLANG)" tools/analyze/run

sbom: $(B)/pipetrace $(AGENT) $(PAGE)
	tools/sbom $< $(VERSION) > $<.spdx.json

# What is handed out: docs/packages.md.
dist:
	tools/install-deps build dist $(if $(filter x86,$(HOST_ARCH)),cross)
	@tools/get-npm build
	$(if $(filter x86,$(HOST_ARCH)),tools/sysroot arm64)
	tools/packaging/dist

# Takes a quarter of an hour: two emulated kernels in four boots each, and this one. Of
# another processor (ARCH=arm64) half an hour: three boots each.
kernels:
	tools/install-deps build kernels $(if $(CROSS),arm64)
	$(if $(CROSS),tools/sysroot $(CROSS))
	$(MAKE) $(if $(CROSS),sim,all $(KERNELS))
	$(MAKE) STATIC=1 B=$(B)/static $(B)/static/pipetrace \
		$(KERNELS:$(B)/%=$(B)/static/%) $(SWITCHES:$(B)/%=$(B)/static/%)
	tests/kernels/run --arch $(ARCH)

# build/bench/COMMIT.json; tests/bench/page.py makes docs/performance.md of it.
bench: all $(BENCH)
	tests/bench/run $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) \
		$(if $(PAIRS),--pairs $(PAIRS)) $(if $(JSON),--json $(JSON))

demo:
	tools/install-deps build
	@tools/get-npm build
	$(MAKE) program
	@if [ "$$(id -u)" = 0 ]; then exec $(B)/pipetrace demo; \
	 else echo 'sudo $(B)/pipetrace demo'; exec sudo $(B)/pipetrace demo; fi

# ---- install ----------------------------------------------------------------
D = $(DESTDIR)$(PREFIX)
DOCS = $(wildcard README.md CHANGELOG.md SECURITY.md LICENSE)
# They name each other, as in the sources.
MORE_DOCS = $(wildcard docs/*.md docs/*.png docs/verdicts/*.md)
SCHEMAS = $(wildcard docs/*.schema.json user/report/*.schema.json)
MAN8 = $(wildcard docs/man/*.8)
# Each shell's completion, where it looks for those of packages.
COMPLETIONS = bash-completion/completions zsh/vendor-completions fish/vendor_completions.d

install: program
	$(INSTALL) -d $(D)/bin $(D)/libexec/pipetrace $(D)/share/man/man8 \
		$(D)/share/doc/pipetrace/docs $(D)/share/pipetrace
	$(INSTALL) -m 755 $(B)/pipetrace $(D)/bin/pipetrace
	for f in $(filter %simjob,$(SIM)); do $(INSTALL) -m 755 $$f $(D)/libexec/pipetrace/ || exit 1; done
	for f in $(filter-out %simjob,$(SIM)) $(AGENT); do \
		$(INSTALL) -m 644 $$f $(D)/libexec/pipetrace/ || exit 1; done
	for f in $(DOCS); do $(INSTALL) -m 644 $$f $(D)/share/doc/pipetrace/ || exit 1; done
	for f in $(MORE_DOCS); do $(INSTALL) -D -m 644 $$f $(D)/share/doc/pipetrace/$$f || exit 1; done
	for f in $(SCHEMAS); do $(INSTALL) -m 644 $$f $(D)/share/pipetrace/ || exit 1; done
	for f in $(MAN8); do $(INSTALL) -m 644 $$f $(D)/share/man/man8/ || exit 1; done
	$(INSTALL) -d $(COMPLETIONS:%=$(D)/share/%)
	$(INSTALL) -m 644 tools/packaging/completions/pipetrace.bash \
		$(D)/share/bash-completion/completions/pipetrace
	$(INSTALL) -m 644 tools/packaging/completions/_pipetrace $(D)/share/zsh/vendor-completions/
	$(INSTALL) -m 644 tools/packaging/completions/pipetrace.fish $(D)/share/fish/vendor_completions.d/
	$(INSTALL) -m 644 tools/packaging/agent.conf $(D)/share/pipetrace/
	$(INSTALL) -d $(D)/share/pipetrace/fleet
	$(INSTALL) -m 644 tools/fleet/rules.yml tools/fleet/dashboard.json $(D)/share/pipetrace/fleet/
	$(INSTALL) -d $(D)/lib/systemd/system
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' tools/packaging/pipetrace-agent.service \
		> $(D)/lib/systemd/system/pipetrace-agent.service
	chmod 644 $(D)/lib/systemd/system/pipetrace-agent.service

uninstall:
	rm -f $(D)/bin/pipetrace $(addprefix $(D)/share/man/man8/,$(notdir $(MAN8)))
	rm -f $(foreach d,$(COMPLETIONS),$(wildcard $(D)/share/$d/*pipetrace*))
	rm -f $(D)/lib/systemd/system/pipetrace-agent.service
	rm -rf $(D)/libexec/pipetrace $(D)/share/doc/pipetrace $(D)/share/pipetrace

clean:
	rm -rf $(B)

-include $(OBJS:.o=.d) $(SAN_OBJS:.o=.d) $(B)/san/user/main.d $(BPF_OBJS:.o=.d)
-include $(UNIT_SRCS:%.c=$(B)/san/%.d) $(UNIT_SHARED_OBJS:.o=.d) $(E2E_SRCS:%.c=$(B)/obj/%.d)
-include $(B)/obj/tools/fleet/simulate.d $(FUZZ_OBJS:.o=.d)
-include $(BENCH_SRCS:%.c=$(B)/obj/%.d)
-include $(AGENT_OBJS:.o=.d)
-include $(wildcard $(B)/sim/obj12/*.d $(B)/sim/obj13/*.d)
