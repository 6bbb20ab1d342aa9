// Package rebuild replaces tables that are derived from the events. New tables are filled in a separate schema, from
// the first event on, while the old ones are in use. When they have caught up, one transaction applies the last events
// and moves them to the place of the old ones, with the cursor of their reader.
//
// A [Build] is one rebuild. Its [Target] applies events to the new tables; the built-in projection has one, and each
// reader of a user with tables. The package owns the registry of derived tables and its rows: their version, the event
// that stops their reader, and a rebuild or verification that is under way.
package rebuild
