-- Makes all timers of a kind due. $1 kind. Locks the kind's timers. Scans table timer: its index
-- begins with due_at.
update taskledger.timer set due_at = clock_timestamp() where kind = $1::text
