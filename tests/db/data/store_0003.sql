BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0003');
CREATE TABLE branches (
	id INTEGER NOT NULL, 
	repo TEXT NOT NULL, 
	name TEXT NOT NULL, 
	start INTEGER, 
	CONSTRAINT pk_branches PRIMARY KEY (id), 
	CONSTRAINT fk_branches_start FOREIGN KEY(start) REFERENCES commits (id), 
	CONSTRAINT uq_branches_repo_name UNIQUE (repo, name)
);
INSERT INTO "branches" VALUES(1,'pytorch/pytorch','main',NULL);
CREATE TABLE cells (
	id INTEGER NOT NULL, 
	cell_id TEXT NOT NULL, 
	model INTEGER NOT NULL, 
	phase TEXT NOT NULL, 
	dtype TEXT NOT NULL, 
	device TEXT NOT NULL, 
	batch_size INTEGER NOT NULL, 
	config INTEGER NOT NULL, 
	CONSTRAINT pk_cells PRIMARY KEY (id), 
	CONSTRAINT fk_cells_config FOREIGN KEY(config) REFERENCES configs (id), 
	CONSTRAINT fk_cells_model FOREIGN KEY(model) REFERENCES models (id), 
	CONSTRAINT uq_cells_cell_id UNIQUE (cell_id)
);
INSERT INTO "cells" VALUES(1,'16942ce8fee4acb0',1,'inference','bfloat16','cuda',8,1);
CREATE TABLE commit_links (
	"commit" INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	target INTEGER NOT NULL, 
	CONSTRAINT pk_commit_links PRIMARY KEY ("commit", kind, target), 
	CONSTRAINT fk_commit_links_commit FOREIGN KEY("commit") REFERENCES commits (id), 
	CONSTRAINT fk_commit_links_target FOREIGN KEY(target) REFERENCES commits (id)
)
 WITHOUT ROWID

;
CREATE TABLE commits (
	id INTEGER NOT NULL, 
	repo TEXT NOT NULL, 
	sha TEXT NOT NULL, 
	author_date DOUBLE, 
	title TEXT, 
	pr_number INTEGER, 
	position INTEGER, committed_at DOUBLE, 
	CONSTRAINT pk_commits PRIMARY KEY (id), 
	CONSTRAINT uq_commits_repo_sha UNIQUE (repo, sha)
);
INSERT INTO "commits" VALUES(1,'pytorch/pytorch','a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1',1785499200.0,'Make it faster (#154667)',154667,NULL,NULL);
INSERT INTO "commits" VALUES(2,'pytorch/pytorch','b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2',1785499200.0,'Make it faster (#154667)',154667,NULL,NULL);
CREATE TABLE configs (
	id INTEGER NOT NULL, 
	config_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	request JSON NOT NULL, 
	CONSTRAINT pk_configs PRIMARY KEY (id), 
	CONSTRAINT uq_configs_config_id UNIQUE (config_id)
);
INSERT INTO "configs" VALUES(1,'44136fa355b3','default','{}');
CREATE TABLE environments (
	id INTEGER NOT NULL, 
	environment_id TEXT NOT NULL, 
	data JSON, 
	CONSTRAINT pk_environments PRIMARY KEY (id), 
	CONSTRAINT uq_environments_environment_id UNIQUE (environment_id)
);
INSERT INTO "environments" VALUES(1,'7b380fdcdfeb','{"torch": {"version": "2.13.0", "git": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, "triton": "3.6.0", "gpu": "Synthetic GPU"}');
CREATE TABLE evidence (
	run INTEGER NOT NULL, 
	cell INTEGER NOT NULL, 
	replicate INTEGER NOT NULL, 
	details BLOB, 
	log_tail BLOB, 
	CONSTRAINT pk_evidence PRIMARY KEY (run, cell, replicate), 
	CONSTRAINT fk_evidence_run_cell_replicate FOREIGN KEY(run, cell, replicate) REFERENCES measurements (run, cell, replicate) ON DELETE CASCADE
);
INSERT INTO "evidence" VALUES(1,1,0,X'789CAB56CA4E2DCA4BCD2956B28A562A29CA2CC9CF8B2FC8CF8C4F2B2D4E4D894F4C49893750D281491401852012864AB1B500945F15EB',NULL);
INSERT INTO "evidence" VALUES(2,1,0,X'789CAB56CA4E2DCA4BCD2956B28A562A29CA2CC9CF8B2FC8CF8C4F2B2D4E4D894F4C49893750D281491401852012864AB1B500945F15EB',NULL);
CREATE TABLE measurements (
	run INTEGER NOT NULL, 
	cell INTEGER NOT NULL, 
	replicate INTEGER NOT NULL, 
	status TEXT NOT NULL, 
	program INTEGER, 
	environment INTEGER, 
	started_at DOUBLE NOT NULL, 
	wall_s DOUBLE NOT NULL, 
	eager_ms DOUBLE, 
	compiled_ms DOUBLE, 
	speedup DOUBLE, 
	eager_kernel_ms DOUBLE, 
	compiled_kernel_ms DOUBLE, 
	device_speedup DOUBLE, 
	compile_cold_s DOUBLE, 
	eager_peak_bytes DOUBLE, 
	compiled_peak_bytes DOUBLE, 
	compression DOUBLE, 
	graphs DOUBLE, 
	graph_breaks DOUBLE, 
	recompiles DOUBLE, 
	cudagraph_skips DOUBLE, 
	cudagraph_partitions DOUBLE, 
	kernels_generated DOUBLE, 
	kernels_extern DOUBLE, 
	error_rmse_ratio DOUBLE, 
	cosine DOUBLE, 
	stage TEXT, 
	exception TEXT, 
	message TEXT, 
	hint TEXT, version INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_measurements PRIMARY KEY (run, cell, replicate), 
	CONSTRAINT fk_measurements_cell FOREIGN KEY(cell) REFERENCES cells (id), 
	CONSTRAINT fk_measurements_environment FOREIGN KEY(environment) REFERENCES environments (id), 
	CONSTRAINT fk_measurements_program FOREIGN KEY(program) REFERENCES programs (id), 
	CONSTRAINT fk_measurements_run FOREIGN KEY(run) REFERENCES runs (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "measurements" VALUES(1,1,0,'pass',1,1,1785549660.0,21.5,8.78717752020954634417e+00,4.44156363293202,1.9783973047367657827e+00,7.0,3.5,2.0,1.90768574206077801136e+01,2000000000.0,1600000000.0,1.25,1.0,0.0,NULL,NULL,NULL,17.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1048581);
INSERT INTO "measurements" VALUES(2,1,0,'pass',1,1,1785553260.0,21.5,8.78717752020954634417e+00,4.44156363293202,1.9783973047367657827e+00,7.0,3.5,2.0,1.90768574206077801136e+01,2000000000.0,1600000000.0,1.25,1.0,0.0,NULL,NULL,NULL,17.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1048581);
CREATE TABLE meta (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_meta PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('revision','6');
CREATE TABLE models (
	id INTEGER NOT NULL, 
	suite TEXT NOT NULL, 
	name TEXT NOT NULL, 
	CONSTRAINT pk_models PRIMARY KEY (id), 
	CONSTRAINT uq_models_suite_name UNIQUE (suite, name)
);
INSERT INTO "models" VALUES(1,'huggingface','bert');
CREATE TABLE notes (
	id INTEGER NOT NULL, 
	subject TEXT NOT NULL, 
	name TEXT NOT NULL, 
	at DOUBLE NOT NULL, 
	author TEXT NOT NULL, 
	text TEXT NOT NULL, 
	CONSTRAINT pk_notes PRIMARY KEY (id)
);
INSERT INTO "notes" VALUES(1,'run','r1',1785722400.0,'ann','the fan was broken');
CREATE TABLE planned (
	run INTEGER NOT NULL, 
	cell INTEGER NOT NULL, 
	CONSTRAINT pk_planned PRIMARY KEY (run, cell), 
	CONSTRAINT fk_planned_cell FOREIGN KEY(cell) REFERENCES cells (id), 
	CONSTRAINT fk_planned_run FOREIGN KEY(run) REFERENCES runs (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
CREATE TABLE programs (
	id INTEGER NOT NULL, 
	program_id TEXT NOT NULL, 
	options JSON, 
	CONSTRAINT pk_programs PRIMARY KEY (id), 
	CONSTRAINT uq_programs_program_id UNIQUE (program_id)
);
INSERT INTO "programs" VALUES(1,'247311706f91','{"backend": "inductor", "triton.cudagraphs": false}');
CREATE TABLE regression_events (
	id INTEGER NOT NULL, 
	regression INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	author TEXT NOT NULL, 
	from_state TEXT, 
	to_state TEXT NOT NULL, 
	text TEXT NOT NULL, 
	CONSTRAINT pk_regression_events PRIMARY KEY (id), 
	CONSTRAINT fk_regression_events_regression FOREIGN KEY(regression) REFERENCES regressions (id) ON DELETE CASCADE
);
INSERT INTO "regression_events" VALUES(1,1,1785722400.0,'ann',NULL,'new','');
INSERT INTO "regression_events" VALUES(2,1,1785726000.0,'bob','new','acknowledged','seen');
INSERT INTO "regression_events" VALUES(3,1,1785729600.0,'bob','acknowledged','acknowledged','it is the new scheduler');
CREATE TABLE regressions (
	id INTEGER NOT NULL, 
	regression_id TEXT NOT NULL, 
	series INTEGER NOT NULL, 
	metric TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	state TEXT NOT NULL, 
	base_run INTEGER, 
	onset_run INTEGER, 
	base_commit INTEGER, 
	onset_commit INTEGER, 
	base_value DOUBLE, 
	new_value DOUBLE, 
	opened_at DOUBLE NOT NULL, 
	owner TEXT NOT NULL, 
	link TEXT NOT NULL, 
	CONSTRAINT pk_regressions PRIMARY KEY (id), 
	CONSTRAINT fk_regressions_base_commit FOREIGN KEY(base_commit) REFERENCES commits (id), 
	CONSTRAINT fk_regressions_base_run FOREIGN KEY(base_run) REFERENCES runs (id) ON DELETE SET NULL, 
	CONSTRAINT fk_regressions_onset_commit FOREIGN KEY(onset_commit) REFERENCES commits (id), 
	CONSTRAINT fk_regressions_onset_run FOREIGN KEY(onset_run) REFERENCES runs (id) ON DELETE SET NULL, 
	CONSTRAINT fk_regressions_series FOREIGN KEY(series) REFERENCES series (id), 
	CONSTRAINT uq_regressions_regression_id UNIQUE (regression_id)
);
INSERT INTO "regressions" VALUES(1,'7257bdc4e3e0',1,'speedup','slower','acknowledged',1,2,1,2,2.0,1.5,1785722400.0,'','');
CREATE TABLE runs (
	id INTEGER NOT NULL, 
	run_id TEXT NOT NULL, 
	branch TEXT NOT NULL, 
	"commit" INTEGER NOT NULL, 
	testbed INTEGER NOT NULL, 
	"trigger" TEXT NOT NULL, 
	label TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	started_at DOUBLE NOT NULL, 
	finished_at DOUBLE, 
	tool_version TEXT NOT NULL, 
	bundle TEXT NOT NULL, 
	lines INTEGER NOT NULL, 
	planned INTEGER NOT NULL, 
	measured INTEGER NOT NULL, 
	statuses JSON NOT NULL, night TEXT DEFAULT '' NOT NULL, ci_url TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_runs PRIMARY KEY (id), 
	CONSTRAINT fk_runs_commit FOREIGN KEY("commit") REFERENCES commits (id), 
	CONSTRAINT fk_runs_testbed FOREIGN KEY(testbed) REFERENCES testbeds (id), 
	CONSTRAINT uq_runs_run_id UNIQUE (run_id)
);
INSERT INTO "runs" VALUES(1,'r1','main',1,1,'test','synthetic test data',1,1785549600.0,1785585600.0,'0.1.0','r1.jsonl.gz',1,1,1,'{"pass": 1}','r1','');
INSERT INTO "runs" VALUES(2,'r2','main',2,1,'test','synthetic test data',1,1785553200.0,1785585600.0,'0.1.0','r2.jsonl.gz',1,1,1,'{"pass": 1}','r2','');
CREATE TABLE samples (
	run INTEGER NOT NULL, 
	cell INTEGER NOT NULL, 
	replicate INTEGER NOT NULL, 
	metric TEXT NOT NULL, 
	count INTEGER NOT NULL, 
	spread DOUBLE, 
	number_format TEXT, 
	data BLOB, 
	CONSTRAINT pk_samples PRIMARY KEY (run, cell, replicate, metric), 
	CONSTRAINT fk_samples_run_cell_replicate FOREIGN KEY(run, cell, replicate) REFERENCES measurements (run, cell, replicate) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "samples" VALUES(1,1,0,'compiled_ms',9,1.32550037617905399484e-02,'<f8',X'789C014800B7FF21C636A2DC9C1140F2662ECD43E011405861D6CCD2EC11407722F0A4995611404DB401544BE211409B49F64CE18C1140142FCA4129C41140954EE5316A571140D2E359BA7D041240A7221F11');
INSERT INTO "samples" VALUES(1,1,0,'eager_ms',9,5.66551351237048767678e-03,'<f8',X'789C014800B7FFEB7FD8C69D6A2140DDF2E559069D21407C1C47B2D78121402055F6D5749C2140C80BF7B7B7CD21408CE492EE08932140E97B54168AF52140B8359A7E3D602140C67A538D888621401ED3220F');
INSERT INTO "samples" VALUES(2,1,0,'compiled_ms',9,1.32550037617905399484e-02,'<f8',X'789C014800B7FF21C636A2DC9C1140F2662ECD43E011405861D6CCD2EC11407722F0A4995611404DB401544BE211409B49F64CE18C1140142FCA4129C41140954EE5316A571140D2E359BA7D041240A7221F11');
INSERT INTO "samples" VALUES(2,1,0,'eager_ms',9,5.66551351237048767678e-03,'<f8',X'789C014800B7FFEB7FD8C69D6A2140DDF2E559069D21407C1C47B2D78121402055F6D5749C2140C80BF7B7B7CD21408CE492EE08932140E97B54168AF52140B8359A7E3D602140C67A538D888621401ED3220F');
CREATE TABLE series (
	id INTEGER NOT NULL, 
	cell INTEGER NOT NULL, 
	branch INTEGER NOT NULL, 
	testbed INTEGER NOT NULL, 
	CONSTRAINT pk_series PRIMARY KEY (id), 
	CONSTRAINT fk_series_branch FOREIGN KEY(branch) REFERENCES branches (id), 
	CONSTRAINT fk_series_cell FOREIGN KEY(cell) REFERENCES cells (id), 
	CONSTRAINT fk_series_testbed FOREIGN KEY(testbed) REFERENCES testbeds (id), 
	CONSTRAINT uq_series_cell_branch_testbed UNIQUE (cell, branch, testbed)
);
INSERT INTO "series" VALUES(1,1,1,1);
CREATE TABLE summaries (
	run INTEGER NOT NULL, 
	suite TEXT NOT NULL, 
	phase TEXT NOT NULL, 
	dtype TEXT NOT NULL, 
	device TEXT NOT NULL, 
	config INTEGER NOT NULL, 
	planned INTEGER NOT NULL, 
	measured INTEGER NOT NULL, 
	passed INTEGER NOT NULL, 
	failed INTEGER NOT NULL, 
	not_applicable INTEGER NOT NULL, 
	n_speedup INTEGER NOT NULL, 
	ln_speedup DOUBLE NOT NULL, 
	n_device_speedup INTEGER NOT NULL, 
	ln_device_speedup DOUBLE NOT NULL, 
	n_compiled_ms INTEGER NOT NULL, 
	ln_compiled_ms DOUBLE NOT NULL, 
	n_compiled_kernel_ms INTEGER NOT NULL, 
	ln_compiled_kernel_ms DOUBLE NOT NULL, 
	n_compression INTEGER NOT NULL, 
	ln_compression DOUBLE NOT NULL, 
	n_compile_cold_s INTEGER NOT NULL, 
	sum_compile_cold_s DOUBLE NOT NULL, 
	CONSTRAINT pk_summaries PRIMARY KEY (run, suite, phase, dtype, device, config), 
	CONSTRAINT fk_summaries_config FOREIGN KEY(config) REFERENCES configs (id), 
	CONSTRAINT fk_summaries_run FOREIGN KEY(run) REFERENCES runs (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "summaries" VALUES(1,'huggingface','inference','bfloat16','cuda',1,1,1,1,0,0,1,6.82287074879198929266e-01,1,6.93147180559945286226e-01,1,1.49100648402626623223e+00,1,1.25276296849536805666e+00,1,2.23143551314209764857e-01,1,1.90768574206077801136e+01);
INSERT INTO "summaries" VALUES(2,'huggingface','inference','bfloat16','cuda',1,1,1,1,0,0,1,6.82287074879198929266e-01,1,6.93147180559945286226e-01,1,1.49100648402626623223e+00,1,1.25276296849536805666e+00,1,2.23143551314209764857e-01,1,1.90768574206077801136e+01);
CREATE TABLE testbeds (
	id INTEGER NOT NULL, 
	testbed_id TEXT NOT NULL, 
	data JSON NOT NULL, 
	CONSTRAINT pk_testbeds PRIMARY KEY (id), 
	CONSTRAINT uq_testbeds_testbed_id UNIQUE (testbed_id)
);
INSERT INTO "testbeds" VALUES(1,'c67a2d450364','{"accelerator": "Synthetic GPU", "driver": "1.0", "cores": 4}');
CREATE INDEX ix_commits_sha ON commits (sha);
CREATE INDEX ix_cells_model ON cells (model);
CREATE INDEX ix_runs_branch ON runs (branch, started_at);
CREATE INDEX ix_runs_commit ON runs ("commit");
CREATE INDEX ix_runs_started ON runs (started_at);
CREATE INDEX ix_planned_cell ON planned (cell, run);
CREATE INDEX ix_runs_night ON runs (night, started_at);
CREATE INDEX ix_commits_pr ON commits (repo, pr_number);
CREATE INDEX ix_commits_position ON commits (repo, position);
CREATE INDEX ix_measurements_history ON measurements (cell, run, replicate, status, program, speedup, compiled_ms, compiled_kernel_ms, compile_cold_s);
CREATE INDEX ix_commit_links_target ON commit_links (target);
CREATE INDEX ix_regressions_series ON regressions (series);
CREATE INDEX ix_regressions_state ON regressions (state);
CREATE INDEX ix_regression_events_regression ON regression_events (regression);
CREATE INDEX ix_notes_subject ON notes (subject, name);
COMMIT;
