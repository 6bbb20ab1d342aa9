package operator

// Statements are those of this package for which a test reads the plan, by file name.
var Statements = map[string]string{
	"dead.sql":      deadSQL,
	"find_dead.sql": findDeadSQL,
}
