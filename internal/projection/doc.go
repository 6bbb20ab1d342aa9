// Package projection reports the state of the built-in projection, its delay, its illegal events and its rebuild, and
// administers it. Package projector keeps the tables.
package projection
