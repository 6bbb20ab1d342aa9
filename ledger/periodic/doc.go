// Package periodic enqueues tasks by the clock.
//
// A schedule names a kind, its args and when. Each time it is due is a slot, and a slot is a
// task: its key is the schedule's kind and "<schedule>@<slot in UTC>", such as
//
//	report.make/nightly@2026-11-21T02:30:00Z
//
// Since a key names one task for ever, a slot never fires twice: not when several runners race,
// nor when one is restarted, nor when the clock is set back, nor when a schedule is deleted and
// made again.
//
// # Three ways to say when
//
//   - Cron, with a Zone: at these times of the day on the wall clocks of that zone.
//   - Every, from an Anchor: at a fixed rate, whatever clocks on walls do.
//   - After: that long after the task before has finished, in whatever state. The first one is
//     due at once, so that at most one is unfinished.
//
// # Clocks on walls
//
// A wall clock skips times when it is put forward (a gap) and shows some twice when it is put
// back (an overlap). What that means depends on the hours of the cron expression:
//
//   - If it names hours ("30 2 * * *"), each time it names is due exactly once a day. A time in
//     a gap is due when the gap ends; several of them there are due once. A time in an overlap
//     is due the first time the clock shows it.
//   - If it means every hour ("*/10 * * * *", all 24 hours), it is due whenever the clock shows
//     such a time: never in a gap, and both times in an overlap.
//
// A day that a zone skipped as a whole (Pacific/Apia had no 30 December 2011) is a gap of 24
// hours.
//
// # Late, missed, overlapping
//
// A runner that finds several slots due, since none was running, fires one of them, or more if
// the schedule's policy is [MissedAll]; see [Missed]. Those that it passes over are recorded: the
// newest of them is a task with the events enqueued and discarded, whose data says how many
// slots it stands for, from when to when. Likewise a slot that is skipped because the task
// before is unfinished ([OverlapSkip]). An operator who releases such a task has it run after all.
//
// # Whose clock
//
// The database's. A [Runner] does not look at its own clock for anything but how long to sleep,
// so any number of them may run, with clocks that differ. What is next is decided when a slot
// fires, and stored in the same transaction that enqueues its task: a runner that is killed in
// between has done neither.
package periodic
