// Package conformance checks a client of the work protocol, docs/work-over-http.md. It plays the server's part of the
// protocol, starts the client as a process, and runs scenarios: lost answers, repeated tasks, cancelled attempts,
// refused results, a server that is unavailable, kills and shutdowns.
//
//	go run ./internal/conformance/check -- node worker.js
//
// # The client under test
//
// The command gets TASKLEDGER_URL and TASKLEDGER_TOKEN in its environment. It works on the kind conformance.task with
// at most 4 tasks at a time, until SIGTERM. On SIGTERM it lets handlers continue for 3 s, and ends with exit code 0. It
// ends with another code if the server refuses it. The args of a task contain its instructions, an object:
//
//	{"do": "return", "value": V}                return V
//	{"do": "echo"}                              return {"kind", "biz_id", "attempt", "args"} of the task
//	{"do": "count"}                             return how often the process has begun the task's biz_id
//	{"do": "sleep", "seconds": S, "value": V}   wait for S seconds, unless the attempt is over, and return V
//	{"do": "large", "bytes": N}                 return a string of N times x
//	{"do": "fail", "error": E}                  fail with the text E; with "permanent": true, or "retry_in": S
//	{"do": "snooze", "seconds": S}              snooze for S seconds
//	{"do": "progress", "value": V}              report the progress V, and return V
package conformance
