#!/usr/bin/env bash
# The example company at work: four agents, one daemon each, one task file dropped with `cp`.
#
#   make demo                              the whole story, about 15 seconds
#   make demo KILL=1                       the same, while the daemons are killed (kill -9) at random moments
#   make demo DIALECT=any                  the same, with agents that answer as models of many families do: any, or
#                                          one of the dialects of docs/scripted-agent.md
#   workspace-example/demo.sh [--chaos] [--dialect DIALECT] [--seed NUMBER] [--dir DIRECTORY]
#
# Everything happens in a fresh copy of this directory: .demo/ in the repository, or DIRECTORY. The agents are scripted
# (company.yaml): no model, no gateway, no bill. All daemons are stopped at the end, also after Ctrl-C.
set -euo pipefail

example="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
repository="$(dirname "$example")"
agents=(analyst extractor writer reviewer)
demo="$repository/.demo"
chaos="${KILL:+1}"
dialect="${DIALECT:-}"
seed="${SEED:-1}" # what the dialect `any` draws
patience=60 # seconds; with --chaos more, because a turn whose outcome is unknown is looked up for up to 45 seconds

while (($#)); do
    case "$1" in
    --chaos) chaos=1 ;;
    --dialect)
        dialect="${2:?--dialect needs a name}"
        shift
        ;;
    --seed)
        seed="${2:?--seed needs a number}"
        shift
        ;;
    --dir)
        demo="$(realpath -m -- "${2:?--dir needs a directory}")"
        shift
        ;;
    *)
        sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
    shift
done
[[ -z $chaos ]] || patience=240

if [[ -t 1 && -z ${NO_COLOR:-} ]]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
say() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
shown() { printf '$ %s\n' "$*"; }

# requirements

[[ -x $repository/.venv/bin/mailboxd ]] || make -C "$repository" --no-print-directory install
export PATH="$repository/.venv/bin:$PATH"

# Only a directory created by an earlier demo is removed.
if [[ -e $demo && ! -f $demo/company.yaml && -n $(ls -A -- "$demo") ]]; then
    echo "demo: $demo is not empty and not created by an earlier demo; choose another directory" >&2
    exit 2
fi
for agent in "${agents[@]}"; do
    # A daemon holds a lock on its workspace's directory itself.
    if [[ -d $demo/$agent ]] && ! flock --nonblock "$demo/$agent" true; then
        echo "demo: a daemon of an earlier demo still runs: $(cat "$demo/$agent/.mailboxd/daemon.json")" >&2
        exit 1
    fi
done
rm -rf -- "$demo"
mkdir -p -- "$demo"
cp -R -- "$example/." "$demo/"
mkdir "$demo/logs"
# What the agents do, for mailboxd-scripted-openclaw, which stands in for openclaw here: also for whoever works on in
# this directory afterwards.
sed -i.orig "s#\[mailboxd-scripted-openclaw\]#[mailboxd-scripted-openclaw, --script, '${demo//\'/\'\'}/company.yaml']#" \
    "$demo"/*/.mailboxd/config.yaml
rm "$demo"/*/.mailboxd/config.yaml.orig
[[ -z $dialect ]] || printf 'dialect: "%s"\nseed: %s\n' "$dialect" "$seed" >>"$demo/company.yaml"
unset MAILBOXD_SCRIPT MAILBOXD_SCRIPT_LEDGER

# daemons

declare -A daemons=()
narrators=()

start() {
    mailboxd run --workspace "$demo/$1" </dev/null >>"$demo/logs/$1.log" 2>&1 &
    daemons[$1]=$!
}

# One sentence per event, as the daemons log them.
narrate() {
    # shellcheck disable=SC2016 # the $ in it are sed's
    tail --pid=$$ -n +1 -F -- "$demo/logs/$1.log" 2>/dev/null | sed -u -n -E "
        s/ \[task=[^]]*\]\$//; t said
        :said
        s/^[0-9-]+T([0-9:]{8})[.0-9]*Z INFO [a-z.]+: (.*)/\1 $(printf '%-9s' "$1") \2/p; t
        s/^[0-9-]+T([0-9:]{8})[.0-9]*Z (WARNING|ERROR) [a-z.]+: (.*)/\1 $(printf '%-9s' "$1") \2 \3/p
    " &
    narrators+=($!)
}

stop() {
    trap '' INT TERM
    local pids=("${daemons[@]}") pid tries
    daemons=()
    for tries in 1 2; do # the second signal means: at once
        for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
        for _ in $(seq 50); do
            local left=0
            for pid in "${pids[@]}"; do if kill -0 "$pid" 2>/dev/null; then left=1; fi; done
            ((left)) || break 2
            sleep 0.1
        done
    done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    ((${#narrators[@]} == 0)) || sleep 0.3 # their last lines
    for pid in "${narrators[@]}"; do kill "$pid" 2>/dev/null || true; done
    narrators=()
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    stop
    printf '\ndemo: %s\n' "$1" >&2
    for agent in "${agents[@]}"; do
        printf -- '---- the end of %s\n' "$demo/logs/$agent.log" >&2
        tail -n 15 -- "$demo/logs/$agent.log" >&2 || true
    done
    printf -- '---- what q3 waits for\n' >&2
    mailboxd why q3 --workspace "$demo/analyst" >&2 || true
    exit 1
}

is_ready() { grep -q ': ready: ' -- "$demo/logs/$1.log" 2>/dev/null; }

reply() { compgen -G "$demo/analyst/mailbox/outbox/*/*.reply.*.q3.*.md" | head -n 1; }

# the story

say "four agents, four workspaces in ${demo/#$PWD\//}"
for agent in "${agents[@]}"; do
    shown mailboxd init "$agent" --agent "$agent"
    mailboxd init "$demo/$agent" --agent "$agent" >/dev/null
done

say "one daemon each"
for agent in "${agents[@]}"; do
    shown "mailboxd run --workspace $agent 2>logs/$agent.log &"
    start "$agent"
done
deadline=$((SECONDS + patience))
for agent in "${agents[@]}"; do
    until is_ready "$agent"; do
        kill -0 "${daemons[$agent]}" 2>/dev/null || fail "the daemon of $agent did not start"
        ((SECONDS < deadline)) || fail "the daemon of $agent was not ready within $patience seconds"
        sleep 0.1
    done
done

say "a task file is dropped"
shown cp q3-analysis.md analyst/mailbox/inbox/
cp -- "$demo/q3-analysis.md" "$demo/analyst/mailbox/inbox/"

if [[ -n $chaos ]]; then say "what happens, while daemons are killed with SIGKILL"; else say "what happens"; fi
for agent in "${agents[@]}"; do narrate "$agent"; done

kills=0
deadline=$((SECONDS + patience))
next_kill=$((${EPOCHREALTIME/[.,]/} + 300000))
until [[ -n $(reply) ]] && grep -q '^status: done' -- "$demo/analyst/tasks/q3/task.md"; do
    ((SECONDS < deadline)) || fail "q3 was not done within $patience seconds"
    ! grep -q '^status: \(failed\|blocked\|cancelled\)' -- "$demo/analyst/tasks/q3/task.md" 2>/dev/null ||
        fail "q3 is $(sed -n 's/^status: //p' "$demo/analyst/tasks/q3/task.md" | head -n 1)"
    if [[ -n $chaos ]] && ((kills < 20 && ${EPOCHREALTIME/[.,]/} >= next_kill)); then
        agent="${agents[RANDOM % ${#agents[@]}]}"
        printf '%(%H:%M:%S)T %-9s %s\n' -1 "$agent" "${bold}kill -9 ${daemons[$agent]}, and started again${plain}"
        kill -KILL "${daemons[$agent]}" 2>/dev/null || true
        wait "${daemons[$agent]}" 2>/dev/null || true
        start "$agent"
        kills=$((kills + 1))
        next_kill=$((${EPOCHREALTIME/[.,]/} + 200000 + RANDOM % 700 * 1000))
    fi
    for agent in "${agents[@]}"; do
        kill -0 "${daemons[$agent]}" 2>/dev/null || fail "the daemon of $agent ended"
    done
    sleep 0.05
done
sleep 0.3 # for the sentence about the reply
stop

answer=$(reply)
say "the answer: ${answer#"$demo/"}"
sed '1,/^## Results$/d' -- "$answer"

say "the two levels: the analyst's plan, and the writer's plan for one part of it"
cd -- "$demo"
shown mailboxd tree q3 --workspace analyst
mailboxd tree q3 --workspace analyst
shown mailboxd tree q3.report --workspace writer
mailboxd tree q3.report --workspace writer

say "the story of one task"
shown mailboxd log q3 --workspace analyst
mailboxd log q3 --workspace analyst

say "the same story, from the database"
query="select seq, at, json_extract(value, '\$.to') from v_events, json_each(data, '\$.passed')
    where task = (select id from v_tasks where local_id = 'q3')"
shown "sqlite3 analyst/.mailboxd/mailboxd.db \"$query\""
if command -v sqlite3 >/dev/null; then
    sqlite3 analyst/.mailboxd/mailboxd.db "$query"
else
    python -c 'import sqlite3, sys; [print(*r, sep="|") for r in sqlite3.connect(sys.argv[1]).execute(sys.argv[2])]' \
        analyst/.mailboxd/mailboxd.db "$query"
fi

say "nothing was done twice, and the events replay to the tables"
shown python count_work.py ledger.jsonl
python count_work.py ledger.jsonl
for agent in "${agents[@]}"; do
    shown mailboxd db verify --workspace "$agent"
    mailboxd db verify --workspace "$agent"
done

say "look around in ${demo/#$repository\//}"
cat <<'END'
analyst/tasks/q3/task.md        the plan, progress, every result
analyst/mailbox/archive/        what came in, byte for byte
analyst/mailbox/outbox/         what was sent: one file per message
writer/tasks/q3.report/task.md  the second level
logs/                           the log of each daemon
END
if [[ -n $chaos ]]; then
    printf '\n%d kills, and the same answer.\n' "$kills"
else
    printf '\nNow kill its daemons at random moments, and see whether it still finishes: make demo KILL=1\n'
fi
