package ledger

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
)

var (
	//go:embed sql/partition_weight_set.sql
	partitionWeightSetSQL string
	//go:embed sql/partition_weight_remove.sql
	partitionWeightRemoveSQL string
	//go:embed sql/partition_weights.sql
	partitionWeightsSQL string
)

// The bounds of a [PartitionWeight].
const (
	MinPartitionWeight = 0.01
	MaxPartitionWeight = 100
)

// PartitionWeight is a partition's share. While partitions have waiting tasks of a kind and priority, these begin in
// proportion to the weights. The default weight is 1, also of the tasks without a partition.
type PartitionWeight struct {
	Partition string
	Weight    float64 // MinPartitionWeight to MaxPartitionWeight
	Actor     string  // the operator that has set it
	Updated   time.Time
}

// SetPartitionWeight sets or replaces the weight of a partition. It takes effect when db's transaction commits; running
// dispatchers apply it within a second. actor is the operator that sets it; "" means the database's session_user.
// It returns an [*InvalidError] if partition, weight or actor is invalid. It never commits.
func SetPartitionWeight(ctx context.Context, db DB, partition string, weight float64, actor string) error {
	err := checkWeighed(partition)
	switch {
	case err != nil:
	case !(weight >= MinPartitionWeight && weight <= MaxPartitionWeight): // also NaN
		err = &InvalidError{Field: "weight", Value: fmt.Sprint(weight), Rule: fmt.Sprintf(
			"must be between %v and %v", MinPartitionWeight, MaxPartitionWeight)}
	default:
		err = checkActor(actor)
	}
	if err != nil {
		return fmt.Errorf("set weight of partition: %w", err)
	}
	_, err = db.Exec(ctx, partitionWeightSetSQL, partition, strconv.FormatFloat(weight, 'f', -1, 64),
		pgquery.Optional(actor))
	return pgerr.Explain("set weight of partition", err)
}

// RemovePartitionWeight removes the weight of a partition, which is 1 from then on, and reports whether the partition
// had one. It takes effect when db's transaction commits. It never commits.
func RemovePartitionWeight(ctx context.Context, db DB, partition string) (bool, error) {
	if err := checkWeighed(partition); err != nil {
		return false, fmt.Errorf("remove weight of partition: %w", err)
	}
	tag, err := db.Exec(ctx, partitionWeightRemoveSQL, partition)
	return tag.RowsAffected() > 0, pgerr.Explain("remove weight of partition", err)
}

func checkWeighed(partition string) error {
	if partition == "" {
		return &InvalidError{Field: "partition", Rule: "must not be empty: tasks without a partition have the weight 1"}
	}
	return CheckPartition(partition)
}

// ReadPartitionWeights returns the weights of at most limit partitions, of the first ones after a partition, ordered by
// name; "" is before the first. It never commits. Errors: [*InvalidError] if limit is less than 1, [ErrNotMigrated].
func ReadPartitionWeights(ctx context.Context, db DB, after string, limit int) ([]PartitionWeight, error) {
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("read weights of partitions: %w", err)
	}
	rows, err := db.Query(ctx, partitionWeightsSQL, after, int64(limit))
	if err != nil {
		return nil, pgerr.Explain("read weights of partitions", err)
	}
	defer rows.Close()
	var all []PartitionWeight
	for rows.Next() {
		var w PartitionWeight
		var weight string
		if err := rows.Scan(&w.Partition, &weight, &w.Actor, pgquery.Micros(&w.Updated)); err != nil {
			return nil, pgerr.Explain("read weights of partitions", err)
		}
		if w.Weight, err = strconv.ParseFloat(weight, 64); err != nil {
			return nil, &CorruptError{What: "weight of partition " + w.Partition, Err: err}
		}
		all = append(all, w)
	}
	return all, pgerr.Explain("read weights of partitions", rows.Err())
}
