# The first text that the shell's bash reads. `protocol.py` says how it works.
# `__ullage_given` has the terminal (or the output pipe), the user's start-up file, the file of the setting
# `shell.startup` and the folder of the program `ullage`; an empty text stands for none.

# Every word that an alias could replace is quoted, and every builtin is called by `builtin`, because the
# user's files may define aliases and functions of the same names.
# Ends a simple line: keeps the last argument of its last command for `$_` in the next line.
__ullage_end() {
  __ullage_last=("$_" "$?")  # an array, because bash never exports an array
  \builtin return "${__ullage_last[1]}"
}

# Arguments: the nonce of the turn, the place of the output, and the last argument of the previous line.
__ullage_turn() {
  \builtin local __ullage_status=$? __ullage_traced=
  if [[ $- == *r* ]]; then \builtin exit "$__ullage_status"; fi  # a restricted bash cannot open the terminal
  if [[ $- == *x* ]]; then
    { \builtin set +x; } 2>/dev/null
    __ullage_traced=1
  fi
  \builtin local -
  \builtin set +aefkuvCET
  \builtin set +o posix
  \builtin local __ullage_name __ullage_text IFS=$' \t\n'
  if [[ ${PS1@a} != *r* ]]; then PS1='ullage$ '; fi
  \builtin printf '\e]133;D;%s\a' "$1" >"$2"
  {
    \builtin printf '\0%s\0%s\0' "$1" "$__ullage_status"
    \builtin pwd
    \builtin printf '\0'
    \builtin compgen -A stopped
    \builtin printf '\0'
    \builtin compgen -A running
    \builtin printf '\0'
    \builtin compgen -A function
    \builtin printf '\0'
    if \builtin shopt -q expand_aliases; then
      for __ullage_name in "${!BASH_ALIASES[@]}"; do
        \builtin printf '%s=%s\0' "$__ullage_name" "${BASH_ALIASES[$__ullage_name]}"
      done
    fi
    \builtin printf '\0'
    for __ullage_name in "${!_@}" \
      "${!A@}" "${!B@}" "${!C@}" "${!D@}" "${!E@}" "${!F@}" "${!G@}" "${!H@}" "${!I@}" "${!J@}" "${!K@}" \
      "${!L@}" "${!M@}" "${!N@}" "${!O@}" "${!P@}" "${!Q@}" "${!R@}" "${!S@}" "${!T@}" "${!U@}" "${!V@}" \
      "${!W@}" "${!X@}" "${!Y@}" "${!Z@}" \
      "${!a@}" "${!b@}" "${!c@}" "${!d@}" "${!e@}" "${!f@}" "${!g@}" "${!h@}" "${!i@}" "${!j@}" "${!k@}" \
      "${!l@}" "${!m@}" "${!n@}" "${!o@}" "${!p@}" "${!q@}" "${!r@}" "${!s@}" "${!t@}" "${!u@}" "${!v@}" \
      "${!w@}" "${!x@}" "${!y@}" "${!z@}"; do
      if [[ ${!__ullage_name@a} == *x* && $__ullage_name != __ullage* ]]; then
        \builtin printf '%s=%s\0' "$__ullage_name" "${!__ullage_name}"
      fi
    done
    \builtin printf 'end %s\0' "$1"
  } >&2
  while [[ $__ullage_name != "run $1" ]]; do
    if IFS= \builtin read -r -d '' __ullage_name <&1; then
      if [[ $__ullage_name == "ask $1" ]]; then __ullage_answer "$1"; fi
    elif (( $? <= 128 )); then  # a higher status means that the user's TMOUT is over
      \builtin exit
      \builtin exit  # bash refuses the first time if jobs are stopped
    fi
  done 2>/dev/null
  IFS= \builtin read -r -d '' __ullage_text <&1
  \builtin history -s -- "${__ullage_text%$'\n'__ullage_end*}" 2>/dev/null
  if [[ -n $__ullage_traced ]]; then __ullage_text="set -x"$'\n'${__ullage_text%$'\n'__ullage_end*}; fi
  __ullage=([0]=1 [1]="$__ullage_text" [9]="$3")
  __ullage_last=()
  \builtin printf '\0ack %s\0' "$1" >&2
  \builtin return "$__ullage_status"
}

if [[ -n ${__ullage_given[1]}${__ullage_given[2]} ]]; then
  # Files for interactive shells set keys, and bash would warn that it does not read them.
  bind() { :; }
  if [[ -n ${__ullage_given[1]} ]]; then \builtin . "${__ullage_given[1]}"; fi <>__TERMINAL
  if [[ -n ${__ullage_given[2]} ]]; then \builtin . "${__ullage_given[2]}"; fi <>__TERMINAL
  \builtin unset -f bind
fi
if [[ -n ${__ullage_given[3]} ]] && ! \builtin type -P ullage >/dev/null; then
  PATH=${PATH:+$PATH:}${__ullage_given[3]}
fi
if [[ ${PS1@a} != *r* ]]; then PS1='ullage$ '; fi
\builtin set +o history
\builtin unset -v __ullage_given
