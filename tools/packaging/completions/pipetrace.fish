# SPDX-License-Identifier: BSD-2-Clause
# Completion of pipetrace for fish. What there is to complete is asked of the program
# itself ("pipetrace COMMAND --help"), so it fits every version.

# [COMMAND]: letter, name, argument and text of each option, with tabs between.
function __pipetrace_options
    command pipetrace $argv --help 2>/dev/null | awk '
        function tell() { if (name) printf "%s\t%s\t%s\t%s\n", letter, name, value, text }
        { rest = $0; sub(/^ +/, "", rest); indent = length($0) - length(rest) }
        indent >= 20 { text = text (text == "" ? "" : " ") rest; next }
        { tell(); name = "" }
        indent >= 2 && indent <= 6 && rest ~ /^(-[A-Za-z], )?--[a-z]/ {
            letter = value = ""
            if (rest !~ /^--/) { letter = substr(rest, 2, 1); rest = substr(rest, 5) }
            name = rest; sub(/ .*/, "", name)
            text = substr(rest, length(name) + 1); sub(/^ +/, "", text)
            if (i = index(name, "=")) { value = substr(name, i + 1); name = substr(name, 1, i - 1) }
            name = substr(name, 3)
        }
        END { tell() }'
end

# CONDITION [COMMAND]: complete its options where the condition holds.
function __pipetrace_complete
    set -l where $argv[1]
    for line in (__pipetrace_options $argv[2..])
        set -l part (string split \t -- $line)
        set -l how -n $where -l $part[2] -d $part[4]
        test -n "$part[1]"; and set -a how -s $part[1]
        switch $part[3]
            case ''
            case FILE OUT DIR
                set -a how -r -F
            case 'PID*'
                set -a how -x -a '(__fish_complete_pids)'
            case MODE
                set -a how -x -a 'light standard full'
            case SEVERITY
                set -a how -x -a 'info warning critical'
            case DOOR
                set -a how -x -a 'auto fexit kprobe pages syscall none'
            case FORMAT
                set -a how -x -a '(__pipetrace_options export | string replace -rf \
                    "^\t([a-z]+)\t(FILE|DIR)\t.*" \'$1\')'
            case '*'
                set -a how -x
        end
        complete -c pipetrace $how
    end
end

set -l known
for line in (command pipetrace --help 2>/dev/null |
        sed -nE '/^ Commands/,/^$/s/^  ([a-z]+) +(.*)/\1\t\2/p')
    set -l part (string split \t -- $line)
    set -a known $part[1]
    complete -c pipetrace -f -n __fish_is_first_arg -a $part[1] -d $part[2]
end
for name in $known
    __pipetrace_complete "__fish_seen_subcommand_from $name" $name
end
__pipetrace_complete "not __fish_seen_subcommand_from $known"
complete -c pipetrace -f -n 'not __fish_seen_subcommand_from report export diff'
