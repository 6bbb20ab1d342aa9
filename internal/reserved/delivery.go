package reserved

import "strings"

// DeliveryPrefix begins the kinds of the deliveries of webhooks. Workers work on their tasks as on those of users.
const DeliveryPrefix = KindPrefix + "webhook."

// IsWork reports whether workers work on the tasks of a kind.
func IsWork[T ~string](kind T) bool {
	return !IsKind(kind) || strings.HasPrefix(string(kind), DeliveryPrefix)
}
