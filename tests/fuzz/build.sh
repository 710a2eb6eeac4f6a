# SPDX-License-Identifier: BSD-2-Clause
# Sourced by fuzz and coverage, in the repository's root: build/fuzz/fuzz-targets with
# libFuzzer and counted lines, and the inputs to begin with in build/fuzz/seeds.
# pointer-overflow of clang also refuses a null pointer and no offset, which every
# empty vector is; gcc's (tests/fuzz/run) does not.
out=build/fuzz
targets=$out/fuzz-targets
make -s "-j$(nproc)" B=$out CC="${CLANG:-clang}" \
	CFLAGS='-fsanitize=fuzzer-no-link -fno-sanitize=pointer-overflow -fprofile-instr-generate -fcoverage-mapping' \
	LDFLAGS='-fsanitize=fuzzer -fprofile-instr-generate' $targets
export LLVM_PROFILE_FILE=/dev/null
rm -rf $out/seeds
for target in $($targets --list | cut -d' ' -f1); do
	mkdir -p "$out/seeds/$target" "$out/corpus/$target" "tests/fuzz/corpus/$target"
	$targets --seeds "$target" "$out/seeds/$target"
done
