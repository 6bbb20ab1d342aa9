package services

import "context"

// Objects is a place in an object store. It is safe for concurrent use by several processes.
type Objects interface {
	// Put stores an object. When it returns nil, the object is complete and survives a crash. It returns an error that
	// is [io/fs.ErrExist] if there is an object with this name, which stays as it is. Of two concurrent calls with one
	// name, one returns that error.
	Put(ctx context.Context, name string, data []byte) error
	// Replace is Put, but it replaces an object with this name at once.
	Replace(ctx context.Context, name string, data []byte) error
	// Get returns at most length bytes of an object from an offset, and fewer only at its end. A negative length means
	// all bytes from the offset. It returns an error that is [io/fs.ErrNotExist] for a missing object.
	Get(ctx context.Context, name string, offset, length int64) ([]byte, error)
	// List returns the names of all objects that begin with prefix, in order.
	List(ctx context.Context, prefix string) ([]string, error)
	// Delete removes an object. A missing object is not an error.
	Delete(ctx context.Context, name string) error
}
