package ledger

// MaxPartitionLen is the maximum length of a partition in bytes.
const MaxPartitionLen = 64

// CheckPartition returns an [*InvalidError] if partition is longer than [MaxPartitionLen], not UTF-8, or contains
// control characters. The empty text is the partition of all tasks without one.
func CheckPartition(partition string) error {
	return checkText("partition", partition, MaxPartitionLen)
}
