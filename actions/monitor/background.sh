# Start the monitor in the background, or stop it and wait for its last record. A job never fails for its monitor.
pid_file="$RUNNER_TEMP/ootbot-monitor.pid"
export INPUT_LOG="${INPUT_LOG:-$RUNNER_TEMP/usage_log.txt}"
echo "log=$INPUT_LOG" >> "$GITHUB_OUTPUT"
if [ "$INPUT_COMMAND" = stop ]; then
  [ -f "$pid_file" ] || { echo "the monitor was not started"; exit 0; }
  pid=$(cat "$pid_file")
  rm -f "$pid_file"
  kill -TERM "$pid" 2> /dev/null
  for _ in $(seq 100); do
    kill -0 "$pid" 2> /dev/null || break
    sleep 0.1
  done
  exit 0
fi
nohup python3 -E -s "$GITHUB_ACTION_PATH/monitor.py" > "$RUNNER_TEMP/ootbot-monitor.out" 2>&1 < /dev/null &
echo $! > "$pid_file"
