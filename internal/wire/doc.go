// Package wire contains bodies of the HTTP API that only its server and clients need: of the work protocol
// (docs/work-over-http.md), batches and changes.
package wire
