// Package api is the HTTP API of the ledger, an [http.Handler] for programs in any language: it enqueues tasks, returns
// their results, streams events, and changes tasks. `taskledger serve --listen` serves it, and services.NewHandler
// mounts it.
//
// openapi.yaml describes every call, and docs/http.md explains them. Errors are problem details (RFC 9457) with a
// stable code and a cure.
//
// # Callers
//
// Each caller acts in a [Role], and may be limited to kinds. It is identified by a bearer token, a client certificate,
// or the header of a trusted proxy. Its name is the actor of the events that its requests append. The pool's login
// needs the role api of the database, and the roles of the calls that it serves: reader, producer, operator.
//
// # Waiting
//
// A request for the result of a task waits by [Config].Waiter. Other waiting requests, and all streams, share one tail
// of the feed in the process (type hub). It runs while there is such a request. A request registers first and reads the
// ledger afterwards, so it misses no change.
//
// A stream first reads the events after its Last-Event-ID from the database. It then continues with the shared tail at
// one place of the feed, without a gap. Positions are not in the order of commits, so a resumed stream may repeat
// events of about the last second before its position.
//
// # Limits
//
// Every limit is a field of [Config] or a constant of this package. A client that reads too slowly is disconnected:
// writes have a deadline, and the size of the events that wait for streams is bounded for the whole process.
package api
