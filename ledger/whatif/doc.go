// Package whatif runs the past failures of tasks against another retry policy, other deadlines or another transition
// table, and reports what would have differed. It changes nothing.
//
// # What is assumed
//
// A recorded attempt shows what would have happened at its time, and nothing else is known. So a simulated attempt
//
//   - fails, if it begins before the last failure of its task was recorded, and takes as long as that one;
//   - succeeds, if it begins when the recorded attempt that succeeded had begun, or later;
//   - fails, if it begins in between: that is the pessimistic side;
//   - has an unknown outcome, if the task never succeeded and the attempt begins after its last failure.
//
// Simulated attempts begin when they are due: a queue in front of the workers is not simulated, and a random delay has
// its mean. A person is not simulated: a task that would have been dead stays dead, although it was released in fact.
// A deadline is checked between attempts and at the end of one.
package whatif
