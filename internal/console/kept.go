package console

import (
	"sync"
	"time"
)

// maxKeys is the number of keys whose values are kept.
const maxKeys = 64

// keyed caches values by key, each made at its first use. The zero keyed is ready for use.
type keyed[K comparable, V any] struct {
	mu    sync.Mutex
	known map[K]*V
}

// of returns the value of a key.
func (k *keyed[K, V]) of(key K) *V {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known[key] == nil {
		if k.known == nil || len(k.known) >= maxKeys {
			k.known = map[K]*V{}
		}
		k.known[key] = new(V)
	}
	return k.known[key]
}

// kept caches a value for maxKeptAge. The zero kept is ready for use.
type kept[T any] struct {
	mu    sync.Mutex // held while the value is read, so that one request reads it for all
	value T
	at    time.Time // of value; zero: none
}

// get returns the value, and reads it if it is too old. An error is not kept.
func (k *kept[T]) get(read func() (T, error)) (T, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.at) < maxKeptAge {
		return k.value, nil
	}
	value, err := read()
	if err == nil {
		k.value, k.at = value, time.Now()
	}
	return value, err
}

// set replaces the value.
func (k *kept[T]) set(value T) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.value, k.at = value, time.Now()
}
