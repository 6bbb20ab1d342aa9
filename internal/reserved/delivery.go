package reserved

// DeliveryPrefix begins the kinds of the deliveries of webhooks. Workers work on their tasks as on those of users.
const DeliveryPrefix = KindPrefix + "webhook."
