-- Whose events these are.
select s.value from taskledger.setting s where s.name = 'installation'
