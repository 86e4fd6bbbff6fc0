"""What the store holds, written for others: benchmark-v3 records, tables, bundles."""
