#!/usr/bin/env bash
# Has the agent look a customer up and refund too much. The register answers with its own token, which the redactor replaces by
# its name; the judge's model sees that the amount is wrong, and you are asked. What is given to this script goes to belay dev:
# --yes answers for you.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
plugin=examples/guardrails
belay=${BELAY:-$root/bin/belay}
[ -x "$belay" ] || { echo "$belay is not there: run make build first, or set BELAY to where belay is" >&2; exit 1; }
if [ -z "${BELAY_PYTHON:-}" ] && [ -x "$root/.build/venv/bin/python" ]; then
  export BELAY_PYTHON=$root/.build/venv/bin/python # make set it up
fi

data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT
cd "$root"
# Two models: the agent's, and the judge's. Both are scripts here.
cat >"$data/belay.yaml" <<END
models:
  support: {provider: scripted, script: $root/$plugin/script.yml}
  judge: {provider: scripted, script: $root/$plugin/judge.yml}
END
head -c 24 /dev/urandom | base64 | "$belay" secret set CRM_TOKEN --data "$data" --tenant dev --log-level error
"$belay" dev $plugin --data "$data" --policy $plugin/policy.yaml --log-level error "$@" <<END
What do we know of customer 7?
Refund 20 to customer 7
END
