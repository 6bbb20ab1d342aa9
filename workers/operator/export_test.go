package operator

// Statements are those of this package for which a test reads the plan, by file name.
var Statements = map[string]string{
	"dead.sql":      deadSQL,
	"dead_page.sql": deadPageSQL,
	"find_dead.sql": findDeadSQL,
}
