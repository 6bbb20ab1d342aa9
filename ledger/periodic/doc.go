// Package periodic enqueues tasks by the clock.
//
// A [Schedule] has a kind, args and a rule for when it is due. Each time at which it is due is a firing, and
// each firing is a task. The task's key is the schedule's kind and "<schedule>@<firing in UTC>", such as
//
//	report.make/nightly@2026-11-21T02:30:00Z
//
// A key names one task only, so no firing happens twice, even if several runners race, a runner is restarted, the
// clock is set back, or a schedule is deleted and created again.
//
// # Rules
//
//   - Cron, with a Zone: at these times of day on the wall clocks of that zone.
//   - Every, from an Anchor: at a fixed rate, whatever wall clocks show.
//   - FixedDelay: when that time has passed since the end of the previous task, in any state. The first firing is
//     due at once, so that at most one task is unfinished.
//
// # Wall clocks
//
// A wall clock skips times when it is put forward (a gap), and shows some times twice when it is put back (an
// overlap). The hours of the cron expression decide which firings are due:
//
//   - If it names hours ("30 2 * * *"), each time that it names is due exactly once a day. A time in a gap is
//     due when the gap ends; several such times are due once. A time in an overlap is due when the clock shows
//     it first.
//   - If it covers every hour ("*/10 * * * *", all 24 hours), it is due whenever the clock shows such a time:
//     never in a gap, and both times in an overlap.
//
// A day that a zone skipped (Pacific/Apia had no 30 December 2011) is a gap of 24 hours.
//
// # Missed and overlapping firings
//
// Firings are missed if no runner is at work when they are due. The next runner fires the newest of them, or more if
// the schedule's policy is [MissedAll]; see [Missed]. It passes over the others. The newest of these becomes a task
// with the events enqueued and discarded, whose data contains their number, the first and the last. A firing that is
// skipped because the previous task is unfinished ([OverlapSkip]) is recorded in the same way. If an operator releases
// such a task, it runs.
//
// # The clock
//
// Only the database's clock decides. [Run] uses its own clock only for the length of its sleep, so any number of
// runners may run, on clocks that differ. The next firing is computed when a firing happens, and stored in the
// transaction that enqueues its task: a runner that is killed before the commit has done neither.
package periodic
