package reserved

// DeliveryPrefix begins the kinds of webhook deliveries. Workers handle their tasks like users' tasks.
const DeliveryPrefix = KindPrefix + "webhook."
