"""Completion for bash. Zsh and fish use click's own classes.

Bash breaks words at colons, and names of sessions contain them: `claude-code:-home-ada/8463c716…`.
Click's class uses the words as bash breaks them. The class here reads the whole line, and offers
the part of each name behind the last break.
"""

from __future__ import annotations

import os
from typing import Any

from click.shell_completion import BashComplete, split_arg_string


class Bash(BashComplete):
    """Click's completion for bash, for words with colons."""

    source_template = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(env COMP_WORDS="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the whole words before the cursor, and the word that is being typed."""
        line = os.environ["COMP_WORDS"]
        typed = split_arg_string(line)
        incomplete = typed.pop() if typed and not line[-1:].isspace() else ""
        return typed[1:], incomplete

    def complete(self) -> str:
        """Return one line per candidate, without the part that bash treats as earlier words."""
        arguments, incomplete = self.get_completion_args()
        breaks = os.environ.get("COMP_WORDBREAKS", "")
        cut = max((incomplete.rfind(sign) + 1 for sign in breaks if sign.strip()), default=0)
        items: list[Any] = self.get_completions(arguments, incomplete)
        for item in items:
            if str(item.value).startswith(incomplete[:cut]):
                item.value = item.value[cut:]
        return "\n".join(map(self.format_completion, items))
