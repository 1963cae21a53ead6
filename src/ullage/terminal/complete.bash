# Completions by bash itself: Ullage sends the words of a command, and a copy of bash (a subshell) finds what
# can follow. So the functions of bash-completion and of the user run with the variables and the directory of
# the shell, and leave nothing behind in it.

__ullage_answer() {
  \builtin local -a __ullage_asked
  \builtin local __ullage_name
  while IFS= \builtin read -r -d '' __ullage_name <&1 && [[ $__ullage_name != "end $1" ]]; do
    __ullage_asked+=("$__ullage_name")
  done
  (__ullage_complete "${__ullage_asked[@]}" >&0 </dev/null &)
}

# Arguments: a nonce, the kind of the question, the line, the index of the last word, its text, the words.
__ullage_complete() {
  \builtin trap - DEBUG ERR RETURN EXIT
  \builtin printf '\0%s\0%s\0' "$1" "$BASHPID"
  \builtin unset -f builtin printf
  __ullage_nonce=$1 __ullage_options=
  if [[ $2 == variables ]]; then
    mapfile -t COMPREPLY < <(compgen -v -- "$5")
  else
    COMP_LINE=$3 COMP_POINT=${#3} COMP_CWORD=$4 COMP_TYPE=9 COMP_KEY=9 COMPREPLY=()
    __ullage_current=$5
    COMP_WORDS=("${@:6}")
    exec 3>&1 >/dev/null
    __ullage_load
    __ullage_find "${COMP_WORDS[0]}"
    exec >&3
  fi
  printf '%s\0' "$__ullage_options" "${COMPREPLY[@]:0:1000}"
  printf '\0end %s\0' "$__ullage_nonce"
}

__ullage_load() {
  if declare -F _completion_loader _comp_load >/dev/null || [[ -n ${BASH_COMPLETION_VERSINFO-} ]]; then
    return
  fi
  for __ullage_file in /usr/share/bash-completion /usr/local/share/bash-completion \
    /opt/homebrew/share/bash-completion /opt/local/share/bash-completion; do
    if [[ -r $__ullage_file/bash_completion ]]; then
      PS1=${PS1:-'$ '}
      . "$__ullage_file/bash_completion"
      return
    fi
  done
}

# A completion function says with `compopt` how its texts are to be inserted.
compopt_of_ullage() {
  while (($#)); do
    if [[ $1 == -o ]]; then __ullage_options+=" $2"; fi
    if [[ $1 == +o ]]; then __ullage_options=${__ullage_options// $2/}; fi
    shift
  done
}

__ullage_find() {
  if [[ ${1##*/} == ullage ]] && ! complete -p ullage >/dev/null 2>&1; then
    eval "$(ullage completions bash 2>/dev/null)"
  fi
  eval "compopt() $(declare -f compopt_of_ullage | tail -n +2)"
  local spec tries
  for tries in 1 2 3; do
    spec=$(complete -p -- "$1" 2>/dev/null || complete -p -- "${1##*/}" 2>/dev/null || complete -p -D 2>/dev/null)
    if [[ -z $spec ]]; then return; fi
    eval "__ullage_apply ${spec#complete }"
    if (($? != 124)); then return; fi
  done
}

__ullage_apply() {
  local function='' program='' passed=()
  while (($# > 1)); do
    case $1 in
      -o) __ullage_options+=" $2"; passed+=("$1" "$2"); shift ;;
      -F) function=$2; shift ;;
      -C) program=$2; shift ;;
      -[AGWPSX]) passed+=("$1" "$2"); shift ;;
      -D | -E | -I) ;;
      -*) passed+=("$1") ;;
    esac
    shift
  done
  if ((${#passed[@]})); then mapfile -t COMPREPLY < <(compgen "${passed[@]}" -- "$__ullage_current"); fi
  if [[ -n $program ]]; then
    export COMP_LINE COMP_POINT COMP_TYPE COMP_KEY
    mapfile -t COMPREPLY < <(eval "$program" '"${COMP_WORDS[0]}" "$__ullage_current" "${COMP_WORDS[COMP_CWORD-1]}"')
  elif [[ -n $function ]]; then
    "$function" "${COMP_WORDS[0]}" "$__ullage_current" "${COMP_WORDS[COMP_CWORD-1]}"
  fi
}
