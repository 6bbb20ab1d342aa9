// Package feed reads the committed events of the ledger: each once, the events of one task in their order, without
// waiting for any open transaction. The services and the subscribers read the ledger through it. Package ledger/feed
// shows users a part of it.
//
// # Windows
//
// Transactions commit out of position order, so no position is a cursor: a reader that continues after the highest
// position it has seen skips later commits. The feed reads windows instead: the events that are visible in one
// snapshot and not in the previous one, like the tick batches of PgQ. The window between two snapshots never changes: a
// reader that crashes and opens it again reads the same events.
//
// An edge of a window consists of three values, read in this order by one statement (sql/window.sql):
//
//	snapshot  pg_current_snapshot(), taken by a transaction without an id, on a primary
//	top       the last position that the sequence has assigned
//	bound     a transaction id, drawn afterwards: newer than both
//
// The events of the window from edge s to edge u are found by two index scans (function taskledger_internal.feed_page):
//
//	late  events up to top of s, visible in u, of a transaction that was running in s or whose id is
//	      between the xmax of s and bound of s: by transaction id
//	tail  events above top of s and up to top of u, visible in u: by position
//
// # Why nothing is missing
//
// Each insert draws its transaction id before its position. Let e be an event that is visible in u and not in s. If
// its position is above top of s, the tail contains it. Otherwise its position was assigned before top of s was read,
// and its transaction id before that, so the id is below bound of s. As e is not visible in s, its transaction was
// running in s or its id is not below the xmax of s. So the late scan finds it.
//
// # Why order holds
//
// Version n+1 of a task is inserted by a transaction that sees version n. So every snapshot that sees version
// n+1 sees version n: n is in the same window or in an earlier one. Within a window events are in position
// order, and positions increase along a task.
//
// # Cursors
//
// The cursor of a reader is the newest of its rows in table taskledger.cursor. Rows are appended and never updated,
// because an updated row becomes slow to read while an old snapshot is in use. Row n+1 is inserted from a select of
// row n. So if two readers share a name, one gets [ErrSuperseded] and has changed nothing. A row contains both edges,
// the position reached within the window, and a mark of the reader.
//
// # Moments
//
// About every second in which events become visible, a feed records in table taskledger.moment which events are
// visible. It also records the end of a longer time without events. Package ledger reads the past by these rows, see
// ledger.Moment. Feeds share them, and thin old ones.
//
// # Crashes, copies, standbys
//
// A crash of PostgreSQL can undo commits that did not wait for the disk, and assign their transaction ids and
// positions again. Such a crash also removes a row of table taskledger.incarnation, or shows that it belongs to another
// life of the server, so the feed detects it and returns [ErrCrashed]: open it again. On a standby it returns
// [ErrNotPrimary].
//
// Transaction ids of another cluster have no meaning in this one. If a cursor or events were restored from another
// cluster, [Open] returns an [*OriginError] until [Rebase] has raised the floor: the position up to which events count
// as visible, whatever their ids are.
//
// # Self-check
//
// Every few seconds a feed counts the events of the windows that it has read, by the definition of a window
// (sql/audit.sql). A missing event would be a bug of this package: it is logged and delivered late.
//
// TestFeedRace and TestFeedInterleavings test these claims. The latter also shows that each of the simpler
// algorithms fails.
package feed
