// Package wire contains bodies of the HTTP API that its server and its clients share, but no user needs: those of the
// work protocol (docs/work-over-http.md), of batches and of changes.
package wire
