#!/usr/bin/env bash
# Makes a git repository with a branch to merge, and has the agent merge and push it under its hooks. You are asked about
# the push. What is given to this script goes to belay dev: --yes answers for you, --model names a real model.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
plugin=examples/guarded-github
belay=${BELAY:-$root/bin/belay}
[ -x "$belay" ] || { echo "$belay is not there: run make build first, or set BELAY to where belay is" >&2; exit 1; }
if [ -z "${BELAY_PYTHON:-}" ] && [ -x "$root/.build/venv/bin/python" ]; then
  export BELAY_PYTHON=$root/.build/venv/bin/python # make set it up
fi

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
export ACME_REPOSITORY=$temp/work
git init --quiet --bare --initial-branch=main "$temp/origin"
git clone --quiet "$temp/origin" "$temp/work" 2>"$temp/clone.txt" || { cat "$temp/clone.txt" >&2; exit 1; } # it warns that nothing is in it yet
cd "$temp/work"
git config user.name Ann
git config user.email ann@acme.example
git config commit.gpgsign false
git checkout --quiet -b main
git commit --quiet --allow-empty -m "Begin"
git push --quiet origin main
git checkout --quiet -b feature
echo "A new lamp." >lamp.txt
git add lamp.txt
git commit --quiet -m "Add a lamp"
git checkout --quiet main

cd "$root"
"$belay" dev $plugin --policy $plugin/policy.yaml --model scripted/$plugin/script.yml --input "Please merge feature" "$@"
echo
echo "What is on origin's main now:"
git -C "$temp/origin" log --format='  %h %s' main
