package ledger

// maxActorLen is the maximum length of an actor's name, in bytes.
const maxActorLen = 255

// checkActor returns an [*InvalidError] if actor cannot be stored with an event. "" stands for the session's user.
func checkActor(actor string) error { return checkText("actor", actor, maxActorLen) }
