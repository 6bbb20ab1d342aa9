-- Keeps all others from changing schedules until this transaction ends; reading goes on.
-- Waits for those who are at it.
lock table taskledger.schedule in share row exclusive mode
