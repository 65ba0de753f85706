# The stage of the how-tos: `. /path/to/mailboxd/docs/howto/try.sh` in an empty directory makes the workspace alpha/, whose
# agents follow company.yaml, and goes there. Keys and state stay in the directory too.
_howto="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
[ -x "$_howto/../../.venv/bin/mailboxd" ] && export PATH="$_howto/../../.venv/bin:$PATH"
export SITE="$PWD/site" XDG_STATE_HOME="$PWD/state" MAILBOXD_SCRIPT="$PWD/company.yaml"
mkdir site
sed "s|\${SITE}|$SITE|" "$_howto/company.yaml" >company.yaml
mailboxd init alpha --agent alpha >/dev/null
cat >>alpha/.mailboxd/config.yaml <<'END'
openclaw:
  command: [mailboxd-scripted-openclaw]
retry:
  backoff_seconds: 0.1
END
cd alpha || return
