package stream

// Subjects of plain NATS, without the prefix of their ledger.
const (
	progressPrefix = "taskledger.progress."
	reportPrefix   = "taskledger.dispatch.from."
	offerPrefix    = "taskledger.dispatch.to."
)
