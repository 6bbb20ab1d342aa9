// Package whatif runs the past failures of tasks against another retry policy, other deadlines or another transition
// table, and reports what would have differed. It changes nothing.
//
// # What is assumed
//
// Only the recorded attempts are known. So a simulated attempt
//
//   - fails if it begins before the task's last failure was recorded, and takes as long as that attempt;
//   - succeeds if it begins at the start of the attempt that succeeded, or later;
//   - fails if it begins in between, the pessimistic assumption;
//   - has an unknown outcome if the task never succeeded and the attempt begins after its last failure.
//
// Simulated attempts begin when they are due: waiting for workers is not simulated, and a random delay is its mean.
// Operators are not simulated: a task that would have died stays dead, even if it was released in fact. Deadlines are
// checked between attempts and at the end of an attempt.
//
// A task that has failed in several runs counts once, with the run of its first failure in the range.
package whatif
