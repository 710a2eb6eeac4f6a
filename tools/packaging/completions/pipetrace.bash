# SPDX-License-Identifier: BSD-2-Clause
# Completion of pipetrace for bash. What there is to complete is asked of the program
# itself ("pipetrace COMMAND --help"), so it fits every version.

# PROGRAM [COMMAND]: "-d --duration SEC|auto" for each option; - where it has no letter.
_pipetrace_options()
{
	"$@" --help 2>/dev/null |
		sed -nE 's/^ {2,6}(-([A-Za-z]), )?(--[a-z-]+)(=([^ ]+))?( .*)?$/-\2 \3 \5/p'
}

# What may stand for an argument that help calls so.
_pipetrace_values() # PROGRAM NAME
{
	case $2 in
	FILE | OUT) compgen -f -- "$cur" ;;
	DIR) compgen -d -- "$cur" ;;
	PID*) compgen -W "$(cd /proc && echo [0-9]*)" -- "$cur" ;;
	MODE) compgen -W 'light standard full' -- "$cur" ;;
	SEVERITY) compgen -W 'info warning critical' -- "$cur" ;;
	DOOR) compgen -W 'auto fexit kprobe pages syscall none' -- "$cur" ;;
	FORMAT) compgen -W "$(_pipetrace_options "$1" export |
		sed -nE 's/^- --([a-z]+) (FILE|DIR)$/\1/p')" -- "$cur" ;;
	esac
}

_pipetrace()
{
	local cur=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]}
	local program=$1 letter name value i
	local -a command=()

	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		[[ ${COMP_WORDS[i]} == -- ]] || continue
		# the command line of a program to start
		if declare -F _command_offset >/dev/null; then
			_command_offset $((i + 1))
		else
			mapfile -t COMPREPLY < <(compgen -c -f -- "$cur")
		fi
		return
	done
	if ((COMP_CWORD > 1)) && [[ ${COMP_WORDS[1]} == [a-z]* ]]; then
		command=("${COMP_WORDS[1]}")
	fi
	# bash takes --mode=light for three words
	if [[ $cur == = ]]; then
		cur=
	elif [[ $option == = ]]; then
		option=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	if [[ $option == -?* && $option != -- ]]; then
		while read -r letter name value; do
			[[ $option == "$letter" || $option == "$name" ]] && [[ $value ]] || continue
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(_pipetrace_values "$program" "$value")
			return
		done < <(_pipetrace_options "$program" "${command[@]}")
	fi
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_pipetrace_options "$program" "${command[@]}" |
			sed -E 's/^(-.?) (--[^ ]*) .+/\1 \2=/; s/^- //')" -- "$cur")
		[[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
	elif ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W "$("$program" --help 2>/dev/null |
			sed -nE '/^ Commands/,/^$/s/^  ([a-z]+) .*/\1/p')" -- "$cur")
	else
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	fi
}

complete -F _pipetrace pipetrace
