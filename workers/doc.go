// Package workers runs handlers.
package workers
