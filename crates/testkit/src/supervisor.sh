# Runs PostgreSQL for the tests and stops it when nobody needs it.
# supervisor LEASE FOLDER IDLE_SECS PAUSE_SECS COMMAND...
#
# Every test process holds a shared lock on LEASE for as long as it lives. When the exclusive lock could be had for
# IDLE_SECS, PostgreSQL is stopped *under* that lock: a test process that comes just then waits, finds no server,
# and starts another.
lease=$1 folder=$2 idle_limit=$3 pause=$4
shift 4

"$@" &
server=$!
trap 'kill -INT "$server"' HUP INT TERM

idle=0
while kill -0 "$server" 2>/dev/null; do
    if [ "$idle" -ge "$idle_limit" ]; then
        exec 9<"$lease"
        if flock --nonblock --exclusive 9; then
            kill -INT "$server"
            break
        fi
        exec 9<&-
        idle=0
    fi
    sleep "$pause"
    if flock --nonblock --exclusive "$lease" true; then
        idle=$((idle + pause))
    else
        idle=0
    fi
done
wait "$server"
rm -rf -- "$folder"
